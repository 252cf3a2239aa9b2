"""Victims, and what becomes of them, by example."""

import pytest

from schedproof.properties.vllm.predicates import preemption

from ...rules.tables import with_tables
from .build import book, ran, request


@pytest.mark.parametrize(
    ("gone", "breaks"), [("c", False), ("bc", False), ("b", True), ("ac", True)]
)
def test_first_come_first_served_the_tail_is_preempted(gone, breaks):
    history = book(*(request(name, 6, 6, 1) for name in "abc"), running="abc")
    reported = preemption.victim_not_the_tail(history, ran({}, preempted=tuple(gone)))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(
    ("gone", "breaks"), [("b", False), ("bc", False), ("c", True), ("a", True)]
)
def test_by_priority_the_least_important_is_preempted_the_last_of_equals(gone, breaks):
    accounts = [request(name, 6, 6, 1, priority=p) for name, p in (("a", 0), ("c", 2), ("b", 2))]
    history = book(*accounts, running="acb", policy="priority")
    reported = preemption.victim_not_least_important(history, ran({}, preempted=tuple(gone)))
    assert (reported is not None) is breaks
    assert preemption.victim_not_the_tail(history, ran({}, preempted=tuple(gone))) is None


@pytest.mark.parametrize(("free", "breaks"), [(0, False), (1, False), (2, True)])
def test_nobody_is_preempted_while_there_are_blocks_for_all(free, breaks):
    # Both are at the end of a block: each needs one more.
    accounts = [request(name, 4, 4, 1) for name in "ab"]
    history = with_tables(book(*accounts, running="ab"), free)
    reported = preemption.needless_preemption(history, ran({"a": 1}, "a", "b", preempted=("b",)))
    assert (reported is not None) is breaks


@pytest.mark.parametrize(("of_b", "breaks"), [(3, True), (4, False)])
def test_no_more_are_preempted_than_have_to_be(of_b, breaks):
    # a needs a block, and c gives one back: b has to go only if it needs a block, too.
    accounts = [request("a", 4, 4, 1), request("b", of_b, of_b, 1), request("c", 3, 3, 1)]
    history = with_tables(book(*accounts, running="abc"), 0)
    step = ran({"a": 1}, "a", "bc", preempted=("c", "b"))
    assert (preemption.needless_preemption(history, step) is not None) is breaks


@pytest.mark.parametrize(
    ("more", "breaks"),
    [
        ({}, False),
        ({"computed": {"a": 7, "b": 4}}, True),
        ({"blocks": {"b": (3,)}}, True),
        ({"computed": {"b": 0}, "blocks": {"b": ()}}, False),
    ],
)
def test_a_victim_holds_nothing_and_has_nothing_computed(more, breaks):
    history = book(request("a", 6, 6, 1), request("b", 6, 6, 1), running="ab")
    step = ran({"a": 1}, "a", "b", preempted=("b",), **more)
    assert (preemption.victim_keeps_something(history, step) is not None) is breaks


@pytest.mark.parametrize(("waiting", "breaks"), [("bcd", False), ("cbd", True), ("bdc", False)])
def test_who_was_preempted_waits_in_front_of_those_who_never_started(waiting, breaks):
    accounts = [request("a", 6, 6, 1), request("b", 6, 6, 1), request("c"), request("d")]
    history = book(*accounts, running="ab")
    step = ran({"a": 1}, "a", waiting, preempted=("b",))
    assert (preemption.newcomer_before_preempted(history, step) is not None) is breaks


def test_who_runs_goes_on_or_is_counted_as_preempted():
    history = book(request("a", 6, 6, 1), request("b", 12, 4), running="ab")
    silent = ran({"a": 1}, "a", "b")
    assert preemption.stops_running(history, silent) is not None
    assert preemption.preemption_not_counted(history, silent) is not None
    counted = ran({"a": 1}, "a", "b", preempted=("b",))
    assert preemption.stops_running(history, counted) is None
    assert preemption.preemption_not_counted(history, counted) is None
    stranger = ran({"a": 1, "b": 3}, "ab", preempted=("c",))
    assert preemption.preemption_not_counted(history, stranger) == (
        "c counted as preempted, was not running"
    )


@pytest.mark.parametrize(("computed", "breaks"), [(10, False), (6, True), (11, True)])
def test_the_counter_is_what_was_cached_and_what_was_scheduled(computed, breaks):
    step = ran({"a": 6}, "a", computed={"a": computed}, prefix_hit={"a": 4})
    reported = preemption.counter_wrong(book(request("a", 12)), step)
    assert (reported is not None) is breaks
