"""Which request is admitted, with how many tokens, and past which others, by example."""

import pytest
from msgspec.structs import replace

from schedproof.properties.nano_vllm.predicates import admission

from .build import SMALL, book, ran, request, runs


def in_part(name, prompt, computed):
    """One whose prompt is computed up to there."""
    return request(name, prompt, computed)


def test_a_step_that_prefills_and_decodes_breaks_the_rule():
    history = book(runs("a"), request("b"), running="a")
    assert admission.phases_mixed(history, ran({"b": 6}, "ab")) is None
    assert admission.phases_mixed(history, ran({"a": 1}, "a", "b")) is None
    reported = admission.phases_mixed(history, ran({"a": 1, "b": 6}, "ab"))
    assert reported == "b prefilled and a decoded in one step"


def test_a_step_that_calls_itself_mixed_breaks_the_rule():
    reported = admission.phases_mixed(book(request("a")), ran({"a": 6}, "a", kind="mixed"))
    assert reported == "the kind of the step is mixed"


def test_a_step_in_which_a_resumed_sequence_lacks_only_its_last_token_may_call_itself_mixed():
    resumed = request("a", 7, emitted=2, regenerated=2)
    step = ran({"a": 1, "b": 6}, "ab", kind="mixed", prefix_hit={"a": 8, "b": 0})
    assert admission.phases_mixed(book(resumed, request("b")), step) is None
    lacks_a_block = replace(step, prefix_hit={"a": 4, "b": 0})
    assert admission.phases_mixed(book(resumed, request("b")), lacks_a_block) is not None
    # It has gone on since, so it decodes.
    further = request("a", 7, emitted=3, regenerated=2)
    assert admission.phases_mixed(book(further, request("b")), step) is not None


@pytest.mark.parametrize(
    ("requests", "running", "exercised"),
    [("ab", "a", True), ("ab", "ab", False), ("ab", "", False)],
)
def test_both_phases_are_at_stake_while_one_runs_and_another_waits(requests, running, exercised):
    history = book(*(request(name) for name in requests), running=running)
    assert admission.both_phases_wanted(history, ran({})) is exercised
    assert admission.someone_runs_and_waits(history, ran({})) is exercised


@pytest.mark.parametrize(
    ("tokens", "reported"), [(4, None), (5, "11 tokens prefilled > max_num_batched_tokens 10")]
)
def test_all_tokens_of_a_prefill_are_within_the_budget(tokens, reported):
    history = book(request("a"), request("b"))
    assert admission.budget_exceeded(history, ran({"a": 6, "b": tokens}, "ab")) == reported


def test_tokens_that_are_decoded_are_outside_the_budget():
    names = "abcdefghijkl"
    history = book(*(runs(name, 1) for name in names), running=names)
    assert admission.budget_exceeded(history, ran(dict.fromkeys(names, 1), names)) is None


@pytest.mark.parametrize(("prompt", "exercised"), [(4, False), (5, True)])
def test_the_budget_binds_when_those_who_wait_have_more(prompt, exercised):
    history = book(request("a"), request("b", prompt), runs("c"), running="c")
    assert admission.budget_binds(history, ran({})) is exercised


def test_no_more_run_than_there_are_slots_even_if_one_ends_in_the_step():
    history = book(
        *(runs(name, 1) for name in "ab"), request("c", 1), request("d", 1), running="ab"
    )
    assert admission.too_many_run(history, ran({"c": 1}, "abc", "d")) is None
    reported = "4 sequences run, but max_num_seqs is 3"
    assert admission.too_many_run(history, ran({"c": 1, "d": 1}, "abcd")) == reported
    ends = ran({"c": 1, "d": 1}, "abd", finished={"c": "eos"})
    assert admission.too_many_run(history, ends) == reported


def test_who_is_preempted_or_computed_in_part_has_no_slot():
    history = book(*(runs(name, 1) for name in "abc"), request("d", 20), running="abc")
    gives_way = ran({"d": 20}, "abd", "c", preempted=("c",))
    assert admission.too_many_run(history, gives_way) is None
    assert admission.too_many_run(history, ran({"d": 10}, "abc", "d")) is None


@pytest.mark.parametrize(
    ("running", "scheduled", "exercised"),
    [("abc", {}, True), ("ab", {"c": 6}, True), ("ab", {}, False)],
)
def test_slots_are_at_stake_while_all_are_taken_and_somebody_is_left(running, scheduled, exercised):
    history = book(*(request(name) for name in "abcd"), running=running)
    assert admission.every_slot_taken(history, ran(scheduled)) is exercised


def test_slots_are_not_at_stake_when_nobody_is_left():
    history = book(*(runs(name) for name in "abc"), running="abc")
    assert not admission.every_slot_taken(history, ran({}))


@pytest.mark.parametrize(
    ("tokens", "hit", "reported"),
    [
        (9, 0, None),
        (8, 0, "a computes 8 tokens in a step, but 9 are left"),
        (5, 4, None),
        (9, 4, "a computes 9 tokens in a step, but 5 are left"),
    ],
)
def test_a_prompt_is_computed_whole_but_for_what_is_cached(tokens, hit, reported):
    step = ran({"a": tokens}, "a", prefix_hit={"a": hit})
    assert admission.cut_wrongly(book(request("a", 9)), step) == reported


@pytest.mark.parametrize(
    ("scheduled", "reported"),
    [
        ({"a": 10}, None),
        (
            {"a": 9},
            "a, number 1 of the step, computes 9 tokens, 15 are left and max_num_batched_tokens "
            "is 10",
        ),
        (
            {"b": 6, "a": 4},
            "a, number 2 of the step, computes 4 tokens, 15 are left and max_num_batched_tokens "
            "is 10",
        ),
    ],
)
def test_in_the_release_the_first_of_a_step_may_be_cut_to_the_budget(scheduled, reported):
    history = book(request("a", 15), request("b"), revision="0.2.0")
    assert admission.cut_wrongly(history, ran(scheduled)) == reported


def test_in_the_release_nobody_computes_more_than_is_left():
    history = book(in_part("a", 15, 10), revision="0.2.0")
    assert admission.cut_wrongly(history, ran({"a": 5}, "a")) is None
    assert admission.cut_wrongly(history, ran({"a": 10}, "a")) == (
        "a, number 1 of the step, computes 10 tokens, 5 are left and max_num_batched_tokens is 10"
    )


@pytest.mark.parametrize(("prompt", "exercised"), [(4, False), (5, True)])
def test_prompts_longer_than_a_block_could_be_cut(prompt, exercised):
    history = book(request("a", prompt))
    assert admission.long_prompt(history, ran({"a": prompt}, "a")) is exercised
    assert not admission.long_prompt(history, ran({}, "", "a"))


@pytest.mark.parametrize(
    ("scheduled", "reported"),
    [
        ({}, None),
        ({"a": 1}, None),
        ({"a": 1, "b": 1}, None),
        ({"b": 1}, "b admitted, but a is ahead in the queue a, b, c"),
        ({"a": 1, "c": 1}, "a, c admitted, but b is ahead in the queue a, b, c"),
        ({"b": 1, "a": 1}, "b, a admitted, but a is ahead in the queue a, b, c"),
    ],
)
def test_nobody_is_admitted_past_one_in_front(scheduled, reported):
    history = book(*(request(name, 1) for name in "abc"))
    assert admission.overtaken(history, ran(scheduled)) == reported


def test_the_queue_goes_before_the_order_of_arrival_and_newcomers_stand_behind_it():
    """b was preempted, so that it waits in front of a; c has only come."""
    history = book(*(request(name, 1) for name in "abc"), waiting="ba")
    assert admission.overtaken(history, ran({"b": 1})) is None
    reported = admission.overtaken(history, ran({"a": 1}))
    assert reported == "a admitted, but b is ahead in the queue b, a, c"


@pytest.mark.parametrize(
    ("scheduled", "exercised"), [({}, True), ({"a": 1}, True), ({"a": 1, "b": 1}, False)]
)
def test_overtaking_is_possible_while_one_stands_behind_the_next(scheduled, exercised):
    history = book(*(request(name, 1) for name in "abc"))
    assert admission.the_head_waits(history, ran(scheduled)) is exercised


WAITS = "b waits although a slot and the budget are left for its 6 tokens, and 2 blocks are free"


@pytest.mark.parametrize(
    ("changes", "breaks"),
    [
        ({}, True),
        ({"free": 2}, True),
        ({"free": 1}, False),
        ({"max_num_batched_tokens": 6}, True),
        ({"max_num_batched_tokens": 5}, False),
        ({"max_num_seqs": 2}, True),
        ({"max_num_seqs": 1}, False),
        # The release counts the slots of the step, and may cut the first prompt.
        ({"revision": "0.2.0", "max_num_seqs": 1}, True),
        ({"revision": "0.2.0", "max_num_batched_tokens": 5}, True),
        ({"revision": "0.2.0", "free": 1}, False),
    ],
    ids=str,
)
def test_nobody_decodes_while_the_first_in_line_passes_every_gate(changes, breaks):
    history = book(runs("a"), request("b"), running="a", **changes)
    reported = admission.needless_wait(history, ran({"a": 1}, "a", "b"))
    assert reported == (WAITS if breaks else None)
    assert admission.needless_wait(history, ran({"b": 6}, "ab")) is None


@pytest.mark.parametrize(
    ("changes", "breaks"),
    [
        ({"max_num_batched_tokens": 12}, True),
        ({"max_num_batched_tokens": 11}, False),
        ({"max_num_batched_tokens": 12, "free": 4}, True),
        ({"max_num_batched_tokens": 12, "free": 3}, False),
        ({"max_num_batched_tokens": 12, "max_num_seqs": 1}, False),
        ({"max_num_batched_tokens": 11, "revision": "0.2.0"}, False),
        ({"max_num_batched_tokens": 12, "max_num_seqs": 2, "revision": "0.2.0"}, True),
        ({"max_num_batched_tokens": 12, "max_num_seqs": 1, "revision": "0.2.0"}, False),
    ],
    ids=str,
)
def test_a_prefill_ends_only_where_the_next_in_line_fails_a_gate(changes, breaks):
    history = book(request("a"), request("b"), **changes)
    reported = admission.needless_wait(history, ran({"a": 6}, "a", "b"))
    assert reported == (WAITS if breaks else None)


def test_a_sequence_in_chunks_is_not_accused_and_takes_no_blocks_again():
    history = book(in_part("a", 15, 10), request("b", 4), revision="0.2.0", free=1)
    reported = admission.needless_wait(history, ran({"a": 5}, "a", "b"))
    assert reported == (
        "b waits although a slot and the budget are left for its 4 tokens, and 1 blocks are free"
    )
    assert admission.needless_wait(history, ran({}, "", "ab")) is None


@pytest.mark.parametrize(
    ("revision", "free", "breaks"),
    [("0.2.0", 1, True), ("0.2.0", 0, False), ("documented", 1, False), ("documented", 2, True)],
)
def test_what_a_newcomer_shares_costs_no_block_where_the_gate_does_not_count_it(
    revision, free, breaks
):
    newcomer = request("b", content=(("a", 6),))
    history = book(runs("a"), newcomer, running="a", revision=revision, free=free)
    reported = admission.needless_wait(history, ran({"a": 1}, "a", "b"))
    assert (reported is not None) is breaks


def test_nobody_is_accused_whose_blocks_nobody_can_count():
    history = book(runs("a"), request("b"), request("c"), running="a", free=None)
    assert admission.needless_wait(history, ran({"a": 1}, "a", "bc")) is None
    aborted = book(runs("a"), request("b"), request("c"), running="a")
    aborted.aborts_inside = {"c"}
    assert admission.needless_wait(aborted, ran({"a": 1}, "a", "bc")) is None


@pytest.mark.parametrize(("free", "breaks"), [(2, True), (1, False)])
def test_an_abort_before_the_step_only_adds_free_blocks(free, breaks):
    history = book(runs("a"), request("b"), running="a", free=free)
    history.aborts_to_report = {"c"}
    reported = admission.needless_wait(history, ran({"a": 1}, "a", "b"))
    assert (reported is not None) is breaks


def admits(history, **tables):
    """A step that prefills every request that has such a table."""
    scheduled = {name: history.live[name].num_tokens for name in tables}
    return ran(scheduled, "".join(tables), blocks=tables)


@pytest.mark.parametrize(
    ("free", "reported"), [(2, None), (1, "a admitted: its 6 tokens need 2 blocks (free: 1)")]
)
def test_the_blocks_of_all_tokens_must_be_free(free, reported):
    history = book(request("a"), free=free)
    assert admission.memory_gate_passed_by(history, admits(history, a=(1, 2))) == reported


def test_shared_blocks_are_counted_and_then_not_taken():
    """a's two blocks are there already: four are to be free for it and for b."""
    tables = {"x": (1, 2)}
    for free, reported in ((3, None), (2, "b admitted: its 9 tokens need 3 blocks (free: 2)")):
        history = book(runs("x", 8), request("a"), request("b", 9), free=free, blocks=tables)
        history.last = ran({}, "x", free_blocks=free, blocks=tables)
        step = admits(history, a=(1, 2), b=(3, 4, 5))
        assert admission.memory_gate_passed_by(history, step) == reported


def test_who_is_admitted_takes_its_blocks_from_those_behind():
    history = book(request("a"), request("b"), free=3)
    reported = admission.memory_gate_passed_by(history, admits(history, a=(1, 2), b=(3, 4)))
    assert reported == "b admitted: its 6 tokens need 2 blocks (free: 1)"
    shared = admission.memory_gate_passed_by(history, admits(history, a=(1, 2), b=(1, 3)))
    assert shared == reported


def test_behind_one_that_has_finished_nobody_can_tell():
    history = book(request("a"), request("b"), free=3)
    step = ran({"a": 6, "b": 6}, "b", finished={"a": "eos"}, blocks={"b": (1, 2)})
    assert admission.memory_gate_passed_by(history, step) is None


def test_before_the_first_step_all_blocks_are_free():
    history = book(request("a", 10))
    history.last = None
    assert SMALL["num_blocks"] == 8
    assert admission.memory_gate_passed_by(history, admits(history, a=(1, 2, 3))) is None
    small = book(request("a", 10), num_blocks=2)
    small.last = None
    reported = admission.memory_gate_passed_by(small, admits(small, a=(1, 2)))
    assert reported == "a admitted: its 10 tokens need 3 blocks (free: 2)"


@pytest.mark.parametrize(("free", "exercised"), [(1, True), (2, False), (None, False)])
def test_memory_is_at_stake_when_the_first_in_line_needs_more_than_is_free(free, exercised):
    history = book(runs("x"), request("a"), running="x", free=free)
    assert admission.pool_too_small_for_now(history, ran({"x": 1}, "x", "a")) is exercised
    assert not admission.pool_too_small_for_now(history, ran({"a": 6}, "xa"))
