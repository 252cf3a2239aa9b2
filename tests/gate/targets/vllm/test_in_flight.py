"""The queue of decisions around vLLM's scheduler, without vLLM."""

from types import SimpleNamespace
from typing import Any

import pytest

from schedproof.gate.targets.vllm.in_flight import Flight, Flights, depth


def flight(**tokens):
    decision: Any = SimpleNamespace(num_scheduled_tokens=tokens, scheduled_spec_decode_tokens={})
    return Flight(decision, None, dict.fromkeys(tokens, 0))


@pytest.mark.parametrize(
    ("config", "most"),
    [
        ({}, 1),
        ({"async_scheduling": True}, 2),
        ({"pipeline_parallel_size": 3}, 3),
        ({"async_scheduling": True, "pipeline_parallel_size": 3}, 3),
    ],
)
def test_so_many_are_on_their_way_at_most(config, most):
    assert depth(config) == most


def test_alone_each_decision_completes_at_once_an_empty_one_too():
    flights, one, empty = Flights(1), flight(a=1), flight()
    assert flights.set_off(one) is one
    assert flights.set_off(empty) is empty


def test_the_oldest_completes_when_the_queue_is_full_or_nothing_was_decided():
    flights = Flights(3)
    first, second, third = flight(a=1), flight(b=1), flight(c=1)
    assert [flights.set_off(one) for one in (first, second)] == [None, None]
    assert flights.set_off(third) is first
    assert [flights.set_off(flight()) for _ in range(2)] == [second, third]


def test_a_fast_worker_completes_so_many_in_a_row_before_one_more_stays():
    flights = Flights(3, early=2)
    made = [flight(a=1) for _ in range(7)]
    done = [flights.set_off(one) for one in made]
    assert done == [made[0], made[1], None, made[2], made[3], None, made[4]]
    assert flights.set_off(flight()) is made[5]


def test_a_server_says_which_decision_completed():
    flights = Flights(3)
    first, second, third, empty = flight(a=1), flight(b=1), flight(c=1), flight()
    assert [flights.take(one) for one in (first, second, third)] == [False, False, True]
    assert flights.completed(second.decision) is None
    assert flights.completed(first.decision) is first
    assert flights.take(empty)
    assert [flights.completed(one.decision) for one in (second, third)] == [second, third]
    assert flights.completed(empty.decision) is None


def test_an_empty_decision_that_a_server_did_not_wait_for_is_forgotten():
    flights, one = Flights(2), flight(a=1)
    assert flights.take(flight())
    assert not flights.take(one)
    assert flights.completed(one.decision) is one


def test_a_worker_knows_what_it_has_sampled_and_a_request_that_joins_is_sent_whole():
    flights, request = Flights(2), SimpleNamespace(num_tokens=5)
    assert flights.known("a", request, joins=True) == 5
    flights.sampled("a", 1)
    assert flights.known("a", request, joins=False) == 6
    flights.set_off(flight(a=1))
    assert flights.tokens_in_flight("a") == 1
    assert flights.known("a", request, joins=True) == 5
