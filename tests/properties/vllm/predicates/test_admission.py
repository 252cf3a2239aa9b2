"""The watermark and the whole sequence, by example."""

import pytest
from msgspec.structs import replace

from schedproof.properties.vllm.predicates import admission

from .build import book, ran, request


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (1, True)])
def test_who_joins_others_leaves_the_reserve(free, breaks):
    history = book(request("a", 6, 6, 1), request("b"), running="a", watermark=0.25)
    step = ran({"a": 1, "b": 6}, "ab", free_blocks=free)
    assert (admission.reserve_given_away(history, step) is not None) is breaks


def test_who_is_alone_may_use_the_reserve_and_the_second_may_not():
    history = book(request("a"), request("b"), watermark=0.25)
    assert admission.reserve_given_away(history, ran({"a": 6}, "a", "b", free_blocks=1)) is None
    both = ran({"a": 6, "b": 4}, "ab", free_blocks=1)
    assert (admission.reserve_given_away(history, both) or "").startswith("b admitted")


@pytest.mark.parametrize(
    ("free", "reserve", "breaks"), [(2, True, False), (1, True, True), (1, False, False)]
)
def test_the_rest_of_a_prompt_must_fit_when_it_begins(free, reserve, breaks):
    # Of 18 tokens 10 run now: three blocks, two more are needed.
    history = book(request("a", 18), reserve_full_isl=reserve)
    reported = admission.rest_does_not_fit(history, ran({"a": 10}, "a", free_blocks=free))
    assert (reported is not None) is breaks


def test_who_was_aborted_inside_the_step_is_not_accused():
    history = book(request("a", 18))
    history.aborts_inside = {"a"}
    step = ran({"a": 2}, "", free_blocks=1, finished={"a": "aborted"}, prefix_hit={})
    assert admission.rest_does_not_fit(history, step) is None


def test_what_later_ones_took_was_free_before():
    history = book(request("a", 12), request("b", 2), max_num_batched_tokens=10)
    step = ran({"a": 8, "b": 2}, "ab", free_blocks=0)
    assert admission.rest_does_not_fit(history, step) is None


def test_a_hit_on_a_block_that_a_running_request_took_in_the_same_step_costs_no_block():
    """Block 4 is new in the step, and held by `a` when `b` finds it."""
    one = request("b", 5, content=(("a", 1), ("out:a", 4)))
    runs = request("a", 1, 2, 2)
    history = book(
        runs,
        one,
        running="a",
        num_blocks=5,
        watermark=0.25,
        **{"block_size": 1, "reserve_full_isl": False},
    )
    history.last = replace(history.last, blocks={"a": (3, 5)}, free_blocks=3)
    step = ran({"a": 1, "b": 1}, "ab", free_blocks=1, prefix_hit={"b": 3})
    step = replace(step, blocks={"a": (3, 5, 4), "b": (3, 5, 4, 1)})
    assert admission.reserve_given_away(history, step) is None
