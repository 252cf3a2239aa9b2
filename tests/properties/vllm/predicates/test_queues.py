"""Queues and their order, by example."""

import pytest

from schedproof.properties.vllm.predicates import queues

from .build import book, ran, request


@pytest.mark.parametrize(
    ("running", "waiting", "breaks"), [("a", "b", False), ("ab", "b", True), ("a", "", True)]
)
def test_an_unfinished_request_is_in_exactly_one_queue(running, waiting, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a")
    step = ran({"a": 1}, running, waiting)
    assert (queues.not_in_one_queue(history, step) is not None) is breaks


def test_who_finishes_is_in_no_queue():
    history = book(request("a", 6, 6, 1), running="a")
    assert queues.not_in_one_queue(history, ran({"a": 1}, finished={"a": "eos"})) is None


def test_no_more_run_than_there_are_slots_even_if_one_ends():
    accounts = [request(name, 2, 2, 1) for name in "abc"] + [request("d", 2)]
    history = book(*accounts, running="abc")
    full = ran({"a": 1, "b": 1, "c": 1}, "abc", "d")
    assert queues.too_many_run(history, full) is None
    assert queues.every_slot_taken(history, full)
    four = ran({"a": 1, "b": 1, "c": 1, "d": 2}, "bcd", finished={"a": "eos"})
    assert queues.too_many_run(history, four) == "4 requests run, max_num_seqs is 3"


def test_running_requests_are_scheduled_before_those_that_join():
    history = book(request("a", 2, 2, 1), request("b", 2), running="a")
    assert queues.out_of_order(history, ran({"a": 1, "b": 2}, "ab")) is None
    assert queues.out_of_order(history, ran({"b": 2, "a": 1}, "ab")) is not None


@pytest.mark.parametrize(("policy", "first"), [("fcfs", "a"), ("priority", "b")])
def test_nobody_is_admitted_past_who_goes_first(policy, first):
    history = book(request("a", priority=1), request("b", priority=0), policy=policy)
    other = "ab".replace(first, "")
    assert queues.overtaken(history, ran({first: 6}, first, other)) is None
    reported = queues.overtaken(history, ran({other: 6}, other, first))
    assert reported == f"{other} admitted, {first} in front of it still waits"


def test_a_step_that_preempts_admits_nobody_and_not_the_victim():
    history = book(request("a", 6, 6, 1), request("b", 6, 6, 1), request("c"), running="ab")
    assert (
        queues.admitted_after_preemption(history, ran({"a": 1}, "a", "bc", preempted=("b",)))
        is None
    )
    for name in "bc":
        step = ran({"a": 1, name: 6}, f"a{name}", preempted=("b",))
        reported = queues.admitted_after_preemption(history, step)
        assert reported == f"{name} admitted in the step that preempted b"


@pytest.mark.parametrize(
    ("changes", "more", "breaks"),
    [
        ({}, {}, True),
        ({"max_num_seqs": 1}, {}, False),
        ({"max_num_batched_tokens": 3, "max_num_seqs": 2}, {}, True),
        ({}, {"free_blocks": 1}, False),
        ({}, {"free_blocks": 2}, True),
        # The reserve of one of eight blocks is refused to a request that joins.
        ({"watermark": 0.125}, {"free_blocks": 2}, False),
        ({"watermark": 0.125}, {"free_blocks": 3}, True),
        ({}, {"preempted": ("a",)}, False),
        # Blocks of one that ends were not free when it was decided.
        ({}, {"finished": {"a": "eos"}}, False),
    ],
)
def test_the_first_in_line_does_not_wait_in_vain(changes, more, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a", **changes)
    reported = queues.needless_wait(history, ran({"a": 1}, "a", "b", **more))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(
    ("says", "free", "breaks"), [("a", 1, True), ("a", 0, False), ("b", 1, False), ("b", 2, True)]
)
def test_what_running_requests_share_with_the_first_in_line_costs_no_block(says, free, breaks):
    one = request("b", content=((says, 6),))
    history = book(request("a", 6, 6, 1), one, running="a", enable_prefix_caching=True)
    reported = queues.needless_wait(history, ran({"a": 1}, "a", "b", free_blocks=free))
    assert (reported is not None) is breaks


def test_everyone_who_runs_has_a_turn_while_the_budget_lasts():
    accounts = [request(name, 6, 6, 1) for name in "abc"]
    history = book(*accounts, running="abc")
    assert queues.passed_by(history, ran({"a": 1, "b": 1, "c": 1}, "abc")) is None
    reported = queues.passed_by(history, ran({"a": 1, "c": 1}, "abc"))
    assert reported == "b runs, the budget is not spent, and it is not scheduled"
    assert queues.passed_by(book(*accounts, running="abc"), ran({"a": 10}, "abc")) is None


def test_by_priority_one_that_is_its_own_victim_may_end_the_round():
    accounts = [request(name, 6, 6, 1) for name in "abc"]
    history = book(*accounts, running="abc", policy="priority")
    assert queues.passed_by(history, ran({"a": 1}, "ac", "b", preempted=("b",))) is None
    # Here a request behind the victim went on, so the round did not end with it.
    assert queues.passed_by(history, ran({"b": 1}, "bc", "a", preempted=("a",))) is not None
