"""Which request is first in line, and which gives way."""

import pytest

from schedproof.model.vllm import queue, scheduler
from schedproof.model.vllm.state import State

from .build import config, ids, waiting

FCFS, PRIORITY = config(policy="fcfs"), config(policy="priority")
# Name, priority, arrival.
A, B, C, D = (
    waiting(5, name=name, priority=priority, arrival=arrival)
    for name, priority, arrival in (("a", 1, 0), ("b", 0, 1), ("c", 1, 2), ("d", 2, 3))
)


def test_more_important_is_the_lower_priority_then_who_came_first():
    assert ids(sorted((D, C, B, A), key=queue.importance)) == ["b", "a", "c", "d"]


def test_first_come_first_served_a_newcomer_is_last_whatever_its_priority():
    assert queue.enqueued(FCFS, (D, A), B) == (D, A, B)


@pytest.mark.parametrize(
    ("newcomer", "expected"), [(B, "bad"), (C, "acd"), (D._replace(priority=3), "add")]
)
def test_by_priority_a_newcomer_stands_behind_those_as_important(newcomer, expected):
    assert ids(queue.enqueued(PRIORITY, (A, D), newcomer)) == list(expected)


def test_first_come_first_served_a_preempted_request_is_in_front_of_everybody():
    assert queue.put_back(FCFS, (A, B), D) == (D, A, B)


def test_by_priority_a_preempted_request_stands_where_it_would_have_stood():
    assert queue.put_back(PRIORITY, (B, D), C) == (B, C, D)
    # It came before the other one of its priority.
    assert queue.put_back(PRIORITY, (B, C, D), A) == (B, A, C, D)


def test_first_come_first_served_the_victim_is_who_was_admitted_last():
    assert queue.victim(FCFS, (D, C, A, B)) is B
    assert queue.victim(FCFS, (D,)) is D


@pytest.mark.parametrize(
    ("running", "expected"),
    [((A, D, B), D), ((D, A, B), D), ((A, B), A), ((A, C, B), C), ((C, A, B), C), ((B,), B)],
)
def test_by_priority_the_victim_is_the_least_important_of_equals_who_came_last(running, expected):
    assert queue.victim(PRIORITY, running) is expected


def test_by_priority_a_more_important_request_passes_those_who_wait():
    for limits, expected in ((FCFS, "ab"), (PRIORITY, "ba")):
        state = State()
        for name, priority in (("a", 1), ("b", 0)):
            state = scheduler.arrive(limits, state, waiting(5, name=name, priority=priority))
        assert ids(state.waiting) == list(expected)
