"""One step in its parts, and whole runs: what holds in each step, and scenarios by name."""

from collections import Counter
from itertools import takewhile
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedproof.model.pool import Pool, blocks_for, prefix
from schedproof.model.spyre import forward, scheduler
from schedproof.model.spyre.documented import chunk_count
from schedproof.model.spyre.forward import Forward
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.state import Decision, State

from ...golden_tables import Arrival, add, play, started
from .build import ALL, EACH, batch, config, decoding, ids, waiting

# Of runs: lengths so small that every limit binds now and then.
TIGHT = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 128}
NO_PAUSING = pytest.mark.parametrize("revision", ["sound", "documented", "2.1.2"])
CACHING = config(prefix_caching=True)
S = (("s", 40),)

# Whole runs are long examples.
HALF = settings(max_examples=settings().max_examples // 2)


def test_who_arrives_waits_behind_the_others():
    state = scheduler.arrive(State(waiting=(waiting(5, name="a"),)), waiting(3, name="b"))
    assert ids(state.waiting) == ["a", "b"]


@ALL
def test_aborting_a_stranger_changes_nothing(revision):
    state = batch(decoding("a", 5, 9))
    assert scheduler.abort(config(), revision, state, "b") == state


@ALL
@pytest.mark.parametrize("place", ["waiting", "running", "paused"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_aborted_request_is_gone_from_its_queue_and_reported(revision, place, inside):
    queue = tuple(waiting(5, name=name) for name in "abc")
    state = State(aborted=("x",))._replace(**{place: queue})
    after = scheduler.abort(config(), revision, state, "b", inside=inside)
    assert after == state._replace(
        **{place: (queue[0], queue[2])}, aborted=("x", "b"), lost_blocks=0
    )


def test_the_blocks_of_an_aborted_request_are_free_those_that_others_hold_apart():
    cached = {prefix(S, 4): (1,), prefix(S, 8): (2,)}
    sequence = decoding("a", 8, 9, content=(("s", 8),), blocks=(1, 2, 3), published=2)
    state = State(
        running=(sequence, decoding("b", 4, 9, blocks=(1, 4))),
        pool=Pool(20, fresh=5, cached=cached),
    )
    after = scheduler.abort(CACHING, SOUND, state, "a")
    assert after.pool == Pool(20, head=(3,), fresh=5, tail=((2, prefix(S, 8)),), cached=cached)


@pytest.mark.parametrize(
    ("revision", "inside", "lost"),
    [(RELEASE_2_5_2, False, 7 + 2), (RELEASE_2_5_2, True, 7), (SOUND, False, 7)],
)
def test_between_two_steps_2_5_2_loses_what_it_promised_to_an_aborted_request(
    revision, inside, lost
):
    """5 + 12 tokens: 5 blocks, 3 of them held. 7 were lost before."""
    sequence = decoding("a", 5, 11, blocks=(1, 2, 3))
    for state in (State(running=(sequence,)), State(paused=(sequence,))):
        before = state._replace(lost_blocks=7)
        after = scheduler.abort(config(), revision, before, "a", inside=inside)
        assert after.lost_blocks == lost


def test_what_is_lost_is_every_block_promised_and_not_held():
    """5 + 12 tokens: 5 blocks, 1 of them held."""
    state = State(running=(decoding("a", 5, 11, blocks=(1,)),))
    assert scheduler.abort(config(), RELEASE_2_5_2, state, "a").lost_blocks == 4


def test_nothing_is_lost_with_a_request_that_was_promised_nothing_yet():
    state = State(waiting=(waiting(5, 12, "a"),), lost_blocks=7)
    assert scheduler.abort(config(), RELEASE_2_5_2, state, "a").lost_blocks == 7


@ALL
def test_a_prefill_goes_before_a_decode_step_and_a_decode_step_before_nothing(revision):
    state = batch(decoding("a", 5, 9), waiting=(waiting(3),))
    newcomer = state.waiting[0]
    decided = revision.decide(config(), revision, state)
    assert decided == (state, Decision("prefill", (newcomer,)))
    held = state._replace(last_step_was_prefill=True)
    decided = revision.decide(config(), revision, held)
    assert decided == (held, Decision("decode", state.running))
    assert revision.decide(config(), revision, State()) == (State(), Decision("idle"))
    begun = batch(waiting(20, computed=4), decoding("a", 5, 9), last_step_was_prefill=True)
    assert ids(revision.decide(config(), revision, begun)[1].members) == ["a"]


@ALL
def test_who_is_paused_is_settled_in_every_step_that_is_no_prefill(revision):
    """6 tokens each: two fit into 13. No request is asked in a prefill step."""
    a, b, c = (decoding(name, 5, 9) for name in "abc")
    tight = config(max_batch_tkv=13)
    state, decision = revision.decide(tight, revision, batch(a, b, c))
    if revision is RELEASE_2_5_2:
        assert (ids(decision.members), ids(state.paused)) == (["a", "b"], ["c"])
        resumed, decision = revision.decide(tight, revision, state._replace(running=()))
        assert (ids(decision.members), resumed.paused) == (["c"], ())
    else:
        assert (decision.members, state) == ((a, b, c), batch(a, b, c))
    prefills = batch(waiting(20, computed=4), waiting=(waiting(3),))
    assert revision.decide(config(max_batch_tkv=1), revision, prefills)[0] == prefills


def test_a_step_that_does_nothing_does_so_to_nobody():
    assert Decision("idle") == Decision("idle", ())


def test_what_was_decided_is_computed_and_nothing_else():
    sequence = waiting(5)
    state = State(waiting=(sequence,), running=(decoding("a", 5, 9),), tkv=9, runner_tkv=9)
    prefill = scheduler.compute(config(), SOUND, state, Decision("prefill", (sequence,)))
    assert prefill == forward.compute_chunk(config(), SOUND, state, sequence)
    decode = scheduler.compute(config(), SOUND, state, Decision("decode", state.decoding))
    assert decode == forward.compute_decode(config(), state)
    idle = scheduler.compute(config(), SOUND, State(tkv=9, runner_tkv=9), Decision("idle"))
    assert idle == (State(runner_tkv=9), Forward({}, {}, {}, 0))


def completed(state, *scheduled, **changes):
    computed = Forward(dict.fromkeys(scheduled, 1), {}, {}, 0)
    return scheduler.complete(config(**changes), SOUND, state, computed)


def test_whoever_was_computed_and_is_through_its_prompt_emits_a_token():
    begun = waiting(20, name="begun", computed=12)
    last_chunk = waiting(5, 3, "last chunk", computed=5)
    computed, spared = decoding("computed", 5, 9), decoding("spared", 5, 9)
    state = State(running=(begun, last_chunk, computed, spared))
    after, emitted, finished = completed(state, "begun", "last chunk", "computed", "gone")
    assert (emitted, finished) == ({"last chunk": 1, "computed": 1}, {})
    assert after == State(
        running=(begun, last_chunk._replace(generated=1), computed._replace(generated=2), spared)
    )


@pytest.mark.parametrize(
    ("output_len", "max_tokens", "finished"),
    [(2, 2, {"a": "length"}), (2, 3, {"a": "eos"}), (3, 3, {}), (3, 4, {})],
)
def test_a_request_finishes_with_its_last_token(output_len, max_tokens, finished):
    sequence = decoding("a", 5, 9, max_tokens=max_tokens, output_len=output_len, blocks=(2, 1))
    after, emitted, why = completed(batch(sequence, decoding("b", 5, 9)), "a")
    assert (emitted, why) == ({"a": 1}, finished)
    assert ids(after.running) == (["b"] if finished else ["a", "b"])
    assert after.pool == (Pool(head=(1, 2)) if finished else Pool())


def test_a_first_token_may_be_the_last():
    state = State(running=(waiting(5, 1, "a", computed=5),))
    assert completed(state, "a")[1:] == ({"a": 1}, {"a": "length"})


def test_aborts_are_reported_once_before_those_who_finish():
    state = batch(decoding("a", 5, 1), aborted=("y", "x"))
    after, _, finished = completed(state, "a")
    assert list(finished.items()) == [("y", "aborted"), ("x", "aborted"), ("a", "length")]
    assert after.aborted == ()
    assert completed(after)[2] == {}


def test_of_those_who_finish_together_the_first_gives_back_first_and_the_last_what_they_share():
    cached = {prefix(S, 4): (1,)}
    a = decoding("a", 5, 1, content=S, blocks=(1, 2), published=1)
    b = decoding("b", 5, 1, content=S, blocks=(1, 3), published=1)
    state = State(running=(a, b), pool=Pool(20, fresh=4, cached=cached))
    after, _, _ = completed(state, "a", "b", prefix_caching=True)
    assert after == State(pool=Pool(20, (3, 2), 4, ((1, prefix(S, 4)),), cached))


def test_a_step_shows_the_state_after_it():
    limits = config(prefix_caching=True, num_blocks=20, max_batch_tkv=13)
    a = decoding("a", 5, 9, content=S, blocks=(1, 2), published=1, prefix_hit=4)
    b = decoding("b", 5, 9, content=S, blocks=(1, 3), published=1)
    # Asked last, since it has generated more than the others.
    c = decoding("c", 4, 1, blocks=(4, 5), generated=2, max_tokens=9, output_len=9)
    state = batch(c, a, b, waiting=(waiting(30), waiting(3, name="behind")))
    state = state._replace(last_step_was_prefill=True, pool=Pool(20, fresh=6), lost_blocks=2)
    assert scheduler.step(limits, RELEASE_2_5_2, state)[1] == {
        "kind": "decode",
        "scheduled": {"a": 1, "b": 1},
        "emitted": {"a": 1, "b": 1},
        "tkv": 6,
        "left_pad_blocks": {"a": 0, "b": 0},
        "slot_blocks": {"a": [2], "b": [3]},
        "waiting": ["new", "behind"],
        "running": ["a", "b"],
        "prefilling": [],
        "paused": ["c"],
        "finished": {},
        "computed": {"a": 6, "b": 6, "c": 4},
        "prefix_hit": {"a": 4, "b": 0, "c": 0},
        "blocks": {"a": [1, 2], "b": [1, 3], "c": [4, 5]},
        # 5 blocks of 20 are held. a and b: 15 tokens, 4 blocks; c: 13 tokens, 4 blocks.
        "free_blocks": 15,
        "reserved_blocks": 2 + 2 + 2 + 2,
    }


def test_a_prefill_step_shows_who_prefills_until_its_last_chunk():
    state, first = scheduler.step(config(), SOUND, State(waiting=(waiting(12),)))
    assert (first["kind"], first["prefilling"], first["running"]) == ("prefill", ["new"], ["new"])
    assert (first["tkv"], first["emitted"], first["computed"]) == (None, {}, {"new": 4})
    state, last = scheduler.step(config(), SOUND, state)
    assert (last["kind"], last["prefilling"], last["running"]) == ("prefill", [], ["new"])
    assert (last["tkv"], last["emitted"], last["computed"]) == (12, {"new": 1}, {"new": 12})


@ALL
def test_an_idle_step_shows_nothing(revision):
    seen = scheduler.step(config(), revision, State(tkv=5))[1]
    assert (seen["kind"], seen["tkv"]) == ("idle", None)
    assert not any(seen[key] for key in seen.keys() - {"kind"})


class ModelRun(NamedTuple):
    config: dict[str, Any]
    arrivals: list[Arrival]


@st.composite
def runs(draw):
    block = draw(st.sampled_from((2, 4)))
    length = 8 * block + draw(st.integers(0, 1))
    limits = {
        "block_size": block,
        "chunk_size": block * draw(st.integers(1, 3)),
        "max_num_seqs": draw(st.integers(1, 4)),
        "max_model_len": length,
        "max_batch_tkv": draw(st.integers(length, 4 * length)),
        "interleave": draw(st.booleans()),
    }
    arrivals: list[Arrival] = []
    for name in range(draw(st.integers(1, 6))):
        step = (arrivals[-1].step if arrivals else 0) + draw(st.sampled_from((0, 0, 1, 3, 7)))
        prompt = draw(st.integers(1, length))
        most = draw(st.integers(1, length - prompt + 1))
        emits = draw(st.just(most) | st.integers(1, most))
        arrivals.append(Arrival(step, str(name), prompt, most, emits))
    return ModelRun(limits, arrivals)


@st.composite
def sharing(draw):
    """A run with prefix caching: prompts begin alike, or go on from what an earlier one said."""
    run = draw(runs())
    arrivals: list[Arrival] = []
    for arrival in run.arrivals:
        common = draw(st.just(arrival.prompt) | st.integers(0, arrival.prompt))
        content = [("s", common), (arrival.id, arrival.prompt - common)]
        if arrivals and draw(st.booleans()):
            earlier = draw(st.sampled_from(arrivals))
            rest = arrival.prompt - earlier.prompt
            if rest > 0:
                content = [*earlier.content, (f"out:{earlier.id}", rest)]
        arrivals.append(arrival._replace(content=tuple(part for part in content if part[1])))
    return ModelRun(run.config | {"prefix_caching": True}, arrivals)


def steps_of(revision, run, **changes):
    return list(play(started(revision, **run.config, **changes), run.arrivals))


@EACH
def test_everyone_is_served_first_come_first_served_to_the_last_token(revision):
    @HALF
    @given(runs())
    def check(run):
        steps = steps_of(revision, run)
        prefills = [
            name for seen in steps if seen["kind"] == "prefill" for name in seen["scheduled"]
        ]
        assert list(dict.fromkeys(prefills)) == [arrival.id for arrival in run.arrivals]
        emitted = Counter(name for seen in steps for name in seen["emitted"])
        finished = {name: why for seen in steps for name, why in seen["finished"].items()}
        for arrival in run.arrivals:
            assert prefills.count(arrival.id) == chunk_count(
                arrival.prompt, run.config["chunk_size"]
            )
            assert emitted[arrival.id] == arrival.output_len
            assert finished[arrival.id] == (
                "length" if arrival.output_len == arrival.max_tokens else "eos"
            )

    check()


def running_after(before, seen):
    """The running queue by what was scheduled: who prefills goes to the front, in a decode step
    to the end; who returns from a pause comes behind requests that stayed."""
    old, ongoing, computed = before["running"], before["prefilling"], list(seen["scheduled"])
    if seen["kind"] == "prefill":
        return [*computed, *(name for name in old if name not in computed)]
    assert not set(computed) & set(ongoing)
    stayed = [name for name in old if name in computed]
    return [*stayed, *(name for name in computed if name not in stayed), *ongoing]


@EACH
def test_a_step_is_one_chunk_or_one_token_for_all_that_decode(revision):
    @HALF
    @given(runs())
    def check(run):
        before: dict[str, Any] = {"running": [], "prefilling": [], "paused": [], "kind": "idle"}
        for seen in steps_of(revision, run):
            seen.setdefault("paused", [])
            assert len(seen["running"]) <= run.config["max_num_seqs"]
            assert len(seen["prefilling"]) <= 1
            decodes = [name for name in before["running"] if name not in before["prefilling"]]
            if seen["kind"] == "prefill":
                assert len(seen["scheduled"]) == 1
                assert before["prefilling"] in ([], list(seen["scheduled"]))
                assert not (run.config["interleave"] and before["kind"] == "prefill" and decodes), (
                    "two prefill steps in a row"
                )
            if seen["kind"] == "decode":
                able = {*decodes, *before["paused"]} - set(seen["paused"])
                assert seen["scheduled"] == dict.fromkeys(able, 1) == seen["emitted"]
            still = [name for name in running_after(before, seen) if name not in seen["finished"]]
            assert seen["running"] == still
            before = seen

    check()


@pytest.mark.parametrize("revision", ["sound", "documented", "2.5.2"])
def test_no_step_is_idle_while_requests_are_pending(revision):
    """2.1.2 idles by a stale tkv, see below."""

    @HALF
    @given(runs())
    def check(run):
        pending: set[str] = set()
        for number, seen in enumerate(steps_of(revision, run)):
            pending |= {arrival.id for arrival in run.arrivals if arrival.step == number}
            assert (seen["kind"] == "idle") is (not pending)
            pending -= seen["finished"].keys()

    check()


@pytest.mark.parametrize("revision", ["sound", "2.1.2", "2.5.2"])
def test_batch_times_tkv_never_exceeds_the_limit(revision):
    @HALF
    @given(runs())
    def check(run):
        for seen in steps_of(revision, run):
            if seen["kind"] == "decode":
                assert len(seen["scheduled"]) * seen["tkv"] <= run.config["max_batch_tkv"]

    check()


@EACH
def test_a_block_belongs_to_one_request_and_holds_what_is_computed(revision):
    @HALF
    @given(runs())
    def check(run):
        prompts = {arrival.id: arrival.prompt for arrival in run.arrivals}
        for seen in steps_of(revision, run):
            held = Counter(block for blocks in seen["blocks"].values() for block in blocks)
            assert set(held.values()) <= {1}
            assert 0 not in held
            for name, computed in seen["computed"].items():
                needed = blocks_for(computed, run.config["block_size"])
                # 2.1.2 gives the first chunk blocks for its left padding's worth of tokens too.
                ahead = revision == "2.1.2" and computed <= prompts[name]
                blocks = len(seen["blocks"][name])
                assert blocks >= needed if ahead else blocks == needed

    check()


def token(request, position):
    """Stream and number of a token, of the prompt or of what is generated after it."""
    for stream, length in (*request.content, (f"out:{request.id}", request.max_tokens)):
        if position < length:
            return stream, position
        position -= length
    raise AssertionError(f"{request.id} has no token there")


@EACH
def test_what_a_request_reads_from_its_blocks_is_what_its_tokens_wrote_there(revision):
    """The cache as memory: each forward writes its tokens to the blocks that it names, and 0 stands
    exactly where it has none to write. Shared and handed out again, a block is never mistaken."""

    @HALF
    @given(sharing(), st.integers(0, 3))
    def check(run, spare):
        block = run.config["block_size"]
        requests = {arrival.id: arrival for arrival in run.arrivals}
        longest = max(arrival.prompt + arrival.max_tokens for arrival in run.arrivals)
        pool = max(blocks_for(longest, block), blocks_for(run.config["max_model_len"], block))
        memory: dict[tuple[int, int], tuple[str, int]] = {}
        written: dict[str, int] = {}
        size = None if revision == "2.1.2" else pool + spare
        for seen in steps_of(revision, run, num_blocks=size):
            for name, tokens in seen["scheduled"].items():
                request = requests[name]
                hit = seen["prefix_hit"].get(name, request.prompt - tokens)
                start = written.get(name, hit)
                written[name] = start + tokens
                slots = seen["slot_blocks"][name]
                first = blocks_for(written[name], block) - len(slots)
                real = {position // block - first for position in range(start, start + tokens)}
                assert {index for index, slot in enumerate(slots) if slot} == real
                for position in range(start, start + tokens):
                    place = (slots[position // block - first], position % block)
                    memory[place] = token(request, position)
            for name, blocks in seen["blocks"].items():
                assert seen["computed"][name] >= written[name]
                for position in range(written[name]):
                    place = (blocks[position // block], position % block)
                    assert memory[place] == token(requests[name], position)

    check()


def common_prefix_len(first, other):
    """Tokens with which both begin."""
    pairs = zip(first, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@EACH
def test_a_hit_is_the_longest_run_of_full_blocks_that_anyone_has_computed(revision):
    """In a pool that never hands a block out again, a request that computed it and whenever."""

    @HALF
    @given(sharing())
    def check(run):
        block = run.config["block_size"]
        requests = {arrival.id: arrival for arrival in run.arrivals}
        # What was computed of each request.
        known: dict[str, list[tuple[str, int]]] = {}
        for seen in steps_of(revision, run):
            for name, tokens in seen["scheduled"].items():
                request = requests[name]
                own = [token(request, position) for position in range(request.prompt - 1)]
                if name not in known:
                    common = (common_prefix_len(own, other) for other in known.values())
                    hit = max((n // block for n in common), default=0) * block
                    assert seen["prefix_hit"].get(name, hit) == hit
                    known[name] = own[:hit]
                computed = len(known[name])
                known[name] += [token(request, computed + n) for n in range(tokens)]

    check()


@pytest.mark.parametrize("revision", ["sound", "documented", "2.5.2"])
def test_a_bounded_pool_is_never_promised_twice_and_whole_again_at_the_end(revision):
    @HALF
    @given(runs() | sharing(), st.integers(0, 12))
    def check(run, spare):
        # 2.5.2 wants a block for the last token, and a pool for a request of full length.
        ends = [
            run.config["max_model_len"],
            *(arrival.prompt + arrival.max_tokens for arrival in run.arrivals),
        ]
        if revision != "2.5.2":
            ends = [tokens - 1 for tokens in ends[1:]]
        pool = blocks_for(max(ends), run.config["block_size"]) + spare
        steps = steps_of(revision, run, num_blocks=pool)
        for seen in steps:
            held = {block for blocks in seen["blocks"].values() for block in blocks}
            assert seen["free_blocks"] == pool - len(held)
            assert 0 <= seen["reserved_blocks"] <= seen["free_blocks"]
            assert all(1 <= block <= pool for block in held)
        assert (steps[-1]["free_blocks"], steps[-1]["reserved_blocks"]) == (pool, 0)

    check()


THREE = [Arrival(0, "a", 6, 6), Arrival(0, "b", 18, 4), Arrival(1, "c", 3, 5)]


def aborted_at(target, name, number, inside):
    """THREE on `target`, one request aborted before or inside step `number`."""
    steps = []
    for step in range(40):
        for arrival in THREE:
            if arrival.step == step:
                add(target, arrival)
        if step == number:
            assert target.abort(name, inside) == {"ok": True}
        steps.append(target.step()["step"])
    return steps


@EACH
@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_abort_at_any_point_removes_the_request_and_nothing_else(name, inside, revision):
    """Waiting, between two chunks, in its last chunk, decoding, in its last step, finished."""
    free = steps_of(revision, ModelRun(TIGHT, THREE))
    ends = next(number for number, seen in enumerate(free) if name in seen["finished"])
    for number in range(ends + 2):
        steps = aborted_at(started(revision, **TIGHT, num_blocks=64), name, number, inside)
        finished = {
            request: (n, why) for n, s in enumerate(steps) for request, why in s["finished"].items()
        }
        arrived = number >= next(arrival.step for arrival in THREE if arrival.id == name)
        if number > ends or not arrived:
            assert finished[name][1] == "length"
        else:
            assert finished[name] == (number, "aborted")
            for seen in steps[number:]:
                assert name not in {*seen["waiting"], *seen["running"], *seen["prefilling"]}
                assert name not in {*seen["emitted"], *seen["computed"], *seen["blocks"]}
                assert name not in seen["scheduled"] or (inside and seen is steps[number])
        emitted = Counter(emitter for seen in steps for emitter in seen["emitted"])
        for other in THREE:
            if other.id != name:
                assert (finished[other.id][1], emitted[other.id]) == ("length", other.max_tokens)
        assert (steps[-1]["free_blocks"], steps[-1]["kind"]) == (64, "idle")


def test_an_abort_inside_lets_the_computation_run_but_not_the_token_out():
    target = started("sound", **TIGHT)
    add(target, Arrival(0, "a", 6, 6))
    target.step()
    target.abort("a", inside=True)
    seen = target.step()["step"]
    assert (seen["kind"], seen["scheduled"]) == ("decode", {"a": 1})
    assert (seen["emitted"], seen["finished"]) == ({}, {"a": "aborted"})


@EACH
def test_several_may_be_aborted_inside_the_same_step(revision):
    target = started(revision, **TIGHT)
    for arrival in THREE:
        add(target, arrival)
    for name in "cab":
        target.abort(name, inside=True)
    seen = target.step()["step"]
    assert (seen["kind"], list(seen["finished"])) == ("prefill", ["c", "a", "b"])
    assert (seen["emitted"], seen["waiting"], seen["running"]) == ({}, [], [])


@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
def test_blocks_of_an_aborted_request_are_handed_out_again(inside):
    target = started("sound", **TIGHT, num_blocks=3)
    for name in "abcd":
        add(target, Arrival(0, name, 6, 6))
        assert set(target.step()["step"]["blocks"][name]) <= {1, 2, 3}
        target.abort(name, inside)
        assert target.step()["step"]["free_blocks"] == 3


@EACH
def test_a_request_that_fits_max_model_len_exactly_runs_to_its_end(revision):
    target = started(revision, **(TIGHT | {"max_batch_tkv": 32}))
    steps = list(play(target, [Arrival(0, "a", 20, 13)]))
    assert steps[-1]["finished"] == {"a": "length"}
    assert steps[-1]["tkv"] == 32
    too_long = {"id": "b", "prompt": [["b", 20]], "max_tokens": 14}
    assert target.add(too_long)["message"] == (
        "prompt + max_tokens - 1 = 33 tokens exceeds max_model_len (32)"
    )


def test_2_5_2_never_starts_what_fills_the_smallest_pool_that_it_takes():
    """Its reservation counts the last token: 20 + 13 tokens are 9 blocks of the 8 that 32 fill."""
    target = started("2.5.2", **TIGHT, num_blocks=8)
    add(target, Arrival(0, "a", 20, 13))
    add(target, Arrival(0, "b", 3, 2))
    for _ in range(3):
        seen = target.step()["step"]
        assert (seen["kind"], seen["waiting"]) == ("idle", ["a", "b"])
    steps = list(play(started("sound", **TIGHT, num_blocks=8), [Arrival(0, "a", 20, 13)]))
    assert steps[-1]["finished"] == {"a": "length"}


@EACH
def test_with_one_slot_requests_run_one_after_the_other(revision):
    steps = steps_of(revision, ModelRun(TIGHT | {"max_num_seqs": 1}, THREE))
    order = [name for seen in steps for name in seen["scheduled"]]
    assert list(dict.fromkeys(order)) == ["a", "b", "c"]
    assert order == sorted(order)


@EACH
def test_without_interleaving_the_chunks_of_a_prompt_run_without_a_pause(revision):
    steps = steps_of(revision, ModelRun(TIGHT | {"interleave": False}, THREE[:2]))
    assert [seen["kind"] for seen in steps][:5] == ["prefill"] * 4 + ["decode"]
    steps = steps_of(revision, ModelRun(TIGHT, THREE[:2]))
    assert [seen["kind"] for seen in steps][:5] == ["prefill", "decode"] * 2 + ["prefill"]


@NO_PAUSING
def test_only_2_1_2_idles_a_step_by_a_stale_tkv_while_a_request_waits(revision):
    """The long request finishes in step 7. For 2.1.2 the last reported tkv (22) still counts it:
    the last chunk of the other would end at 20 + 2 + 19 = 41 > 32. So nothing runs in step 8; the
    idle step resets the tkv, and step 9 does what step 8 should have done.
    """
    long, short = Arrival(0, "long", 20, 3), Arrival(0, "short", 6, 20)
    steps = steps_of(revision, ModelRun(TIGHT | {"chunk_size": 4}, [long, short]))
    assert steps[7]["finished"] == {"long": "length"}
    assert steps[7]["prefilling"] == ["short"]
    if revision == "2.1.2":
        assert (steps[8]["kind"], steps[8]["prefilling"]) == ("idle", ["short"])
    resumes = steps[9 if revision == "2.1.2" else 8]
    assert (resumes["kind"], resumes["scheduled"]) == ("prefill", {"short": 2})


def test_paused_requests_take_turns_and_whoever_waits_may_go_when_nobody_runs():
    """Two in their second block have a volume of 14 and more, of 13."""
    limits = TIGHT | {"max_batch_tkv": 13}
    arrivals = [Arrival(0, "a", 5, 4), Arrival(0, "b", 5, 4), Arrival(3, "c", 3, 2)]
    steps = steps_of("2.5.2", ModelRun(limits, arrivals))
    assert [(seen["kind"], list(seen["scheduled"]), seen["paused"]) for seen in steps] == [
        ("prefill", ["a"], []),
        ("decode", ["a"], []),
        ("prefill", ["b"], []),
        # b has generated one token, a two: a sits out, then b. Meanwhile c has to wait.
        ("decode", ["b"], ["a"]),
        ("decode", ["a"], ["b"]),
        ("decode", ["b"], ["a"]),
        # The fourth token of a.
        ("decode", ["a"], ["b"]),
        # No request runs: now c goes before b returns, and in its first block is pushed to 8, too.
        ("prefill", ["c"], ["b"]),
        ("decode", ["b"], ["c"]),
        ("decode", ["c"], []),
    ]


def test_2_1_2_chooses_a_prompt_without_room_and_idles_every_second_step():
    """Prompts of 3 and 2 blocks, a pool of 4: the second one waits until the first has left."""
    target = started("2.1.2", **TIGHT, num_blocks=4)
    steps = list(play(target, [Arrival(0, "a", 9, 4), Arrival(0, "b", 8, 1)]))
    kinds = ["prefill", "prefill", "decode", "idle", "decode", "idle", "decode", "prefill"]
    assert [step["kind"] for step in steps] == kinds
    assert all(step["tkv"] is None for step in steps if step["kind"] == "idle")


def test_without_interleaving_2_1_2_idles_for_ever():
    target = started("2.1.2", **TIGHT, num_blocks=4, interleave=False)
    for arrival in (Arrival(0, "a", 9, 4), Arrival(0, "b", 8, 1)):
        add(target, arrival)
    kinds = [target.step()["step"]["kind"] for _ in range(20)]
    assert kinds == ["prefill"] * 2 + ["idle"] * 18


def test_2_1_2_ends_where_a_request_that_decodes_finds_no_block():
    target = started("2.1.2", **TIGHT, num_blocks=5)
    for arrival in (Arrival(0, "a", 8, 4), Arrival(0, "b", 8, 4)):
        add(target, arrival)
    kinds = [target.step()["step"]["kind"] for _ in range(3)]
    assert kinds == ["prefill", "decode", "prefill"]
    reply = target.step()
    assert not reply["ok"]
    assert (reply["error"], reply["message"]) == ("crashed", "no block is free for token 9 of b")
