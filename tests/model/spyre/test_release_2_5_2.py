"""The differences of release 2.5.2: pausing, the scan of the queue, a tkv that it remembers."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.pool import Pool
from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre import documented
from schedproof.model.spyre.documented import max_tkv
from schedproof.model.spyre.release_2_5_2 import (
    RELEASE_2_5_2,
    fairness_order,
    fits_limit,
    pause_and_resume,
)
from schedproof.model.spyre.state import State
from schedproof.model.spyre.volumetric import Decoding, Newcomer, accepts, release_2_1_2
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay

from .build import ALL, BLOCK, batch, chunk, config, decoding, ids, only, waiting

OLD = decoding("old", 5, 10)
ONE = batch(OLD)


def member(name, computed, generated=1, paused_steps=0):
    """A request that decodes or is paused: `computed` tokens, of which it generated all but one."""
    prompt = computed - generated + 1
    return waiting(prompt, 50, name)._replace(
        computed=computed, generated=generated, paused_steps=paused_steps
    )


@pytest.mark.parametrize(
    ("computed", "volume"),
    [
        ((), 0),
        ((5,), 6),
        # Both in their second block.
        ((5, 4), 2 * 6),
        # The shorter is pushed a block to the right, and reaches further there: 4 + 3.
        ((4, 2), 2 * 7),
        # The next token begins a third block.
        ((8, 2, 6), 3 * 11),
    ],
)
def test_a_batch_fits_if_its_next_decode_step_is_within_the_limit(computed, volume):
    members = [member(str(number), tokens) for number, tokens in enumerate(computed)]
    assert fits_limit(config(max_batch_tkv=max(volume, 1)), members)
    assert volume <= 1 or not fits_limit(config(max_batch_tkv=volume - 1), members)


CROWD = State(
    running=(
        member("few", 9, 2),
        member("many", 9, 4),
        waiting(20, name="prefills", computed=4),
        member("as few", 9, 2),
    ),
    paused=(member("once", 9, 3, 1), member("twice", 9, 5, 2), member("once, more", 9, 6, 1)),
)


def test_who_was_paused_longest_is_asked_first_then_who_has_generated_fewest():
    assert ids(fairness_order(config(), CROWD)) == [
        *("twice", "once", "once, more"),
        *("few", "as few", "many"),
    ]


def test_with_long_output_priority_who_has_generated_most_is_asked_first():
    """Still after requests that were paused longer; equals keep their order."""
    assert ids(fairness_order(config(long_output_priority=True), CROWD)) == [
        *("twice", "once, more", "once"),
        *("many", "few", "as few"),
    ]


def test_among_equals_the_paused_come_before_those_who_run():
    state = State(running=(member("runs", 9),), paused=(member("paused", 9),))
    assert ids(fairness_order(config(), state)) == ["paused", "runs"]


def test_nobody_is_paused_while_all_fit():
    state = State(running=(member("a", 9, 2), member("b", 9, 1)))
    assert pause_and_resume(config(max_batch_tkv=20), state) == state
    assert pause_and_resume(config(max_batch_tkv=20), State()) == State()


def test_whoever_stays_or_returns_has_no_paused_step():
    stays, returns = member("a", 9, 1, 3), member("b", 9, 1, 2)
    after = pause_and_resume(config(), State(running=(stays,), paused=(returns,)))
    assert after == State(running=(member("a", 9), member("b", 9)))


def test_who_does_not_fit_is_paused_and_counts_the_steps():
    """Two reach 10, three 30. The one that generated most is asked last."""
    a, b, c = member("a", 9, 3), member("b", 9, 1), member("c", 9, 2)
    tight = config(max_batch_tkv=29)
    once = pause_and_resume(tight, State(running=(a, b, c)))
    assert once == State(running=(b, c), paused=(a._replace(paused_steps=1),))
    # Without a step in between a, paused longest, is asked first; then b again.
    again = pause_and_resume(tight, once)
    assert again == State(running=(b, a), paused=(c._replace(paused_steps=1),))
    # Paused as long as before, c is next; a, with more tokens than b, sits out again.
    third = pause_and_resume(tight, again)
    assert third == State(running=(b, c), paused=(a._replace(paused_steps=1),))


def test_paused_on_and_on_a_request_counts_on():
    """Room for one only: the two that were paused take turns before the third."""
    names = ("a", "b", "c")
    state = State(running=tuple(member(name, 9, number) for number, name in enumerate(names, 1)))
    alone = config(max_batch_tkv=10)
    shown = []
    for _ in range(4):
        state = pause_and_resume(alone, state)
        shown.append(
            (
                ids(state.running),
                [(sequence.id, sequence.paused_steps) for sequence in state.paused],
            )
        )
    assert shown == [
        (["a"], [("b", 1), ("c", 1)]),
        (["b"], [("c", 2), ("a", 1)]),
        (["c"], [("a", 2), ("b", 1)]),
        (["a"], [("b", 2), ("c", 1)]),
    ]


def test_one_who_does_not_fit_does_not_stop_those_behind():
    """Beside the first (9) the second (17) would reach 18; the third does not widen the batch."""
    first, long, third = member("first", 9, 1), member("long", 17, 2), member("third", 5, 3)
    state = pause_and_resume(config(max_batch_tkv=30), State(running=(first, long, third)))
    assert state == State(running=(first, third), paused=(long._replace(paused_steps=1),))


def test_who_stays_keeps_its_place_and_who_returns_goes_to_the_end():
    """In the order in which they were asked; a request that prefills is not asked at all."""
    prefills = waiting(20, name="prefills", computed=4)
    a, b = member("a", 5, 4), member("b", 5, 1)
    c, d = member("c", 5, 3, 1), member("d", 5, 2, 7)
    state = State(running=(a, prefills, b), paused=(c, d))
    fresh = (c._replace(paused_steps=0), d._replace(paused_steps=0))
    # All four reach 6 each.
    all_requests = pause_and_resume(config(max_batch_tkv=24), state)
    assert all_requests == State(running=(a, prefills, b, fresh[1], fresh[0]))
    # With room for three, a is asked last.
    three = pause_and_resume(config(max_batch_tkv=23), state)
    assert three == State(
        running=(prefills, b, fresh[1], fresh[0]), paused=(a._replace(paused_steps=1),)
    )


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=6),
    st.integers(0, 6),
    st.integers(24, 120),
)
def test_who_stays_is_within_the_limit_and_nobody_else_would_be(sizes, decoding, limit):
    """No request paused fits beside all requests that were asked before and stay; a request
    stays."""
    all_requests = [member(str(n), length, 1, age) for n, (length, age) in enumerate(sizes)]
    before = State(running=tuple(all_requests[:decoding]), paused=tuple(all_requests[decoding:]))
    after = pause_and_resume(config(max_batch_tkv=limit), before)
    order = ids(fairness_order(config(), before))
    length = {sequence.id: sequence.computed + 1 for sequence in all_requests}

    def volume(names):
        return len(names) * max_tkv([length[name] for name in names], BLOCK)

    kept = ids(after.running)
    assert kept
    assert sorted(kept + ids(after.paused)) == sorted(order)
    assert volume(kept) <= limit
    for sequence in after.paused:
        ahead = [name for name in order[: order.index(sequence.id)] if name in kept]
        assert volume([*ahead, sequence.id]) > limit
    places = [order.index(sequence.id) for sequence in after.paused]
    assert all(place < next_ for place, next_ in pairwise(places))


@ALL
def test_only_2_5_2_forgets_who_is_paused_when_nobody_runs(revision):
    forgets = revision is RELEASE_2_5_2
    state = State(paused=(OLD,))
    assert documented.may_prefill(config(), revision, state, waiting(3)) is forgets


def test_2_5_2_has_no_max_model_length_constraint():
    limits = config(max_model_len=26, chunk_size=16, pausing=False)
    assert documented.may_prefill(limits, RELEASE_2_5_2, ONE, waiting(16))
    kept = replace(RELEASE_2_5_2, fits_model_length=documented.fits_model_length)
    assert not documented.may_prefill(limits, kept, ONE, waiting(16))


def test_while_it_pauses_2_5_2_asks_only_for_room_in_the_decode_batch():
    tight = {"max_batch_tkv": 1, "max_model_len": 1}
    assert documented.may_prefill(config(**tight), RELEASE_2_5_2, ONE, waiting(3, 4))
    off = config(**tight, pausing=False)
    assert not documented.may_prefill(off, RELEASE_2_5_2, ONE, waiting(3, 4))
    full = config(**tight, max_num_seqs=1)
    assert not documented.satisfies_last_chunk(full, RELEASE_2_5_2, ONE, waiting(3, 4))


def test_a_lack_of_blocks_behind_a_skipped_one_stops_the_queue_as_well():
    """2 blocks held and 2 promised, of 14: enough for the 31 tokens of a, which is refused for
    its volume, and for c, but not for the 51 of b."""
    limits = config(num_blocks=14, max_batch_tkv=31, pausing=False)
    a, b, c = waiting(3, 28, "a"), waiting(30, 21, "b"), waiting(3, 2, "c")
    state = batch(OLD._replace(blocks=(1, 2)), waiting=(a, c), pool=Pool(14, fresh=3))
    assert RELEASE_2_5_2.candidate(limits, RELEASE_2_5_2, state) == c
    state = state._replace(waiting=(a, b, c))
    assert RELEASE_2_5_2.candidate(limits, RELEASE_2_5_2, state) is None


@only("2.5.2")
@pytest.mark.parametrize("computed", [0, 4, 12])
def test_from_2_4_on_a_chunk_reports_the_length_of_its_prompt(revision, computed):
    sequence = waiting(18, computed=computed, blocks=(1, 2, 3)[: computed // BLOCK])
    state = State(running=(decoding("old", 30, 9),), tkv=30, runner_tkv=30)
    after, shown = chunk(revision, state, sequence)
    assert (shown.tkv, after.tkv, after.runner_tkv) == (18, 18, 18)


LIMIT = 96
CONFIG = {
    "block_size": 4,
    "chunk_size": 8,
    "max_num_seqs": 4,
    "max_model_len": 64,
    "max_batch_tkv": LIMIT,
    "pausing": False,
    "interleave": False,
}


def request(name, arrival, prompt, max_tokens):
    return Request(
        id=name,
        arrival=arrival,
        prompt=((name, prompt),),
        max_tokens=max_tokens,
        output_len=max_tokens,
    )


def test_2_5_2_without_pausing_admits_by_a_tkv_below_that_of_a_member_and_then_pauses():
    requests = (request("r0", 2, 20, 16), request("r1", 2, 4, 23), request("r2", 4, 11, 28))
    scenario = Scenario(system="spyre", revision="2.5.2", config=CONFIG, requests=requests)
    steps = []
    replay(ModelTarget(), scenario, [], watch=lambda _, step: steps.append(step))
    # r0 decodes with 20 tokens when r2 starts, and the step before reports a tkv of 4.
    assert (steps[5].tkv, dict(steps[6].scheduled)) == (4, {"r2": 4})
    # Pausing is off, and only a pause keeps the limit.
    assert steps[20].paused == ("r0",)


def test_the_formula_with_the_current_tkv_refuses_it():
    batch = [Decoding(20, 15, 20), Decoding(4, 22, 20)]
    accepted = {
        tkv: accepts(release_2_1_2(tkv, batch, Newcomer(11, 28), 4), LIMIT) for tkv in (4, 20)
    }
    assert accepted == {4: True, 20: False}
