"""A request that goes first and who is left out, by example."""

import pytest

from schedproof.properties.llmservingsim.predicates import queues

from .build import book, ran, request

FIRST = {"prioritize_prefill": True}


def test_the_batch_is_in_the_order_of_arrival():
    history = book(request("a", 6, 6, 1), request("b", 6, 2), running="ab")
    assert queues.not_by_arrival(history, ran({"a": 1, "b": 4})) is None
    assert queues.not_by_arrival(history, ran({"b": 4, "a": 1})) == (
        "scheduled in the order b, a; expected a, b"
    )
    assert queues.both_phases(history, ran({}))


def test_nobody_who_has_started_is_passed_over():
    history = book(request("a", 6, 2), request("b", 6, 6, 1), running="ab")
    assert queues.not_by_arrival(history, ran({"b": 1})) == (
        "a has started and gets nothing, b behind it does"
    )
    off = {"enable_chunked_prefill": False, "max_num_batched_tokens": 3}
    history = book(request("a", 6, 2), request("b", 6, 6, 1), running="ab", **off)
    # Its four tokens may not be cut to the three that are left.
    assert queues.not_by_arrival(history, ran({"b": 1})) is None


def test_prioritised_prefills_come_first_and_decodes_behind_them():
    history = book(request("a", 6, 6, 1), request("b", 6, 2), running="ab", **FIRST)
    assert queues.prefill_not_first(history, ran({"b": 4, "a": 1})) is None
    assert queues.prefill_not_first(history, ran({"a": 1, "b": 4})) is not None
    assert queues.prefill_not_first(history, ran({"a": 1})) is not None
    assert queues.not_by_arrival(history, ran({"b": 4, "a": 1})) is None
    assert queues.prefill_overtakes(history, ran({"b": 4, "a": 1}))


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_a_chunk_keeps_no_decode_out(revision):
    history = book(request("a", 6, 6, 1), request("b", 6, 2), running="ab", revision=revision)
    assert queues.decode_left_out(history, ran({"b": 4})) == (
        "a decodes and is left out beside a chunk, with budget left"
    )
    assert queues.decode_left_out(history, ran({"a": 1, "b": 4})) is None
    # Without a chunk it is another rule's.
    assert queues.decode_left_out(history, ran({})) is None
    history = book(request("a", 6, 6, 1), request("b", 12, 2), running="ab", revision=revision)
    assert queues.decode_left_out(history, ran({"b": 10})) is None


def test_nobody_waits_for_a_slot_where_there_is_no_cap():
    history = book(request("a", 1), request("b", 1), max_num_seqs=0)
    assert queues.waits_for_a_slot(history, ran({"a": 1}, "a", "b")) is not None
    assert queues.waits_for_a_slot(history, ran({"a": 1, "b": 1}, "ab")) is None
    history = book(request("a", 1), request("b", 1), max_num_seqs=1)
    assert queues.waits_for_a_slot(history, ran({"a": 1}, "a", "b")) is None
    assert queues.no_cap(book(max_num_seqs=0), ran({}, "abc"))


def test_who_must_not_be_cut_does_not_end_the_batch():
    off = {"enable_chunked_prefill": False, "num_blocks": None}
    history = book(request("a", 8), request("b", 6), request("c", 2), **off)
    reported = queues.kept_out(history, ran({"a": 8}, "a", "bc", free_blocks=None))
    assert reported == "c gets nothing: b gets nothing, with budget and blocks"
    assert queues.kept_out(history, ran({"a": 8, "c": 2}, "ac", "b", free_blocks=None)) is None
    assert queues.passed_over(history, ran({"a": 8, "c": 2}))
    assert not queues.passed_over(history, ran({"a": 8}))


@pytest.mark.parametrize(
    ("step", "breaks"),
    [
        (ran({"a": 1}, "a", "b"), True),
        # Seven tokens to its last one are two blocks; a may still take one.
        (ran({"a": 1}, "a", "b", blocks={"a": [1, 2]}, free_blocks=4), False),
        (ran({"a": 1}, "a", "b", blocks={"a": [1, 2]}, free_blocks=6), True),
        # Blocks of who has just left may not have been free before.
        (ran({"a": 1}, "", "b", finished={"a": "length"}), False),
        (ran({"a": 1}, "a", "b", preempted=("c",)), False),
    ],
)
def test_nobody_waits_with_room_until_its_last_token(step, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a")
    assert (queues.needless_wait(history, step) is not None) is breaks


@pytest.mark.parametrize(("free", "breaks"), [(2, True), (1, False)])
def test_at_head_nobody_waits_with_room_for_what_it_knows(free, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a", revision="head")
    step = ran({"a": 1}, "a", "b", free_blocks=free)
    assert (queues.needless_wait(history, step) is not None) is breaks


@pytest.mark.parametrize(("says", "free", "breaks"), [("a", 1, True), ("b", 1, False)])
def test_what_running_requests_share_costs_no_block(says, free, breaks):
    one = request("b", content=((says, 6),))
    history = book(
        request("a", 6, 6, 1), one, running="a", revision="head", enable_prefix_caching=True
    )
    step = ran({"a": 1}, "a", "b", free_blocks=free)
    assert (queues.needless_wait(history, step) is not None) is breaks


def test_at_head_every_slot_that_is_taken_counts():
    history = book(
        request("a", 6, 6, 1), request("b"), running="a", revision="head", max_num_seqs=1
    )
    assert queues.needless_wait(history, ran({"a": 1}, "a", "b")) is None
