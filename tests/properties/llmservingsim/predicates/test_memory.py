"""What is free when a request starts, by example."""

import pytest

from schedproof.properties.llmservingsim.predicates import memory

from .build import book, ran, request


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (1, True)])
def test_blocks_until_the_last_token_are_free_when_a_request_starts(free, breaks):
    # 6 + 8 - 1 tokens are four blocks, two of which it holds.
    step = ran({"a": 6}, "a", blocks={"a": [1, 2]}, free_blocks=free)
    assert (memory.not_promised(book(request("a")), step) is not None) is breaks


def test_what_others_were_promised_is_not_free():
    history = book(request("a", 6, 6, 1), request("b"), running="a")
    step = ran({"a": 1, "b": 6}, "ab", blocks={"a": [1, 2], "b": [3, 4]}, free_blocks=3)
    assert memory.not_promised(history, step) == (
        "b starts; requests that run may still take 4 blocks, 3 are free"
    )
    # No request is accused who does not start.
    step = ran({"a": 1}, "a", blocks={"a": [1, 2]}, free_blocks=0)
    assert memory.not_promised(book(request("a", 6, 6, 1), running="a"), step) is None


def test_nobody_starts_past_one_that_waits_for_blocks():
    history = book(request("a"), request("b", 1, max_tokens=1))
    assert memory.overtaken(history, ran({"b": 1}, "b", "a")) == (
        "b starts, a came before it and waits for blocks"
    )
    assert memory.overtaken(history, ran({"a": 6}, "a", "b")) is None
    off = {"enable_chunked_prefill": False, "max_num_batched_tokens": 5}
    history = book(request("a"), request("b", 1, max_tokens=1), **off)
    assert memory.overtaken(history, ran({"b": 1}, "b", "a")) is None


def test_waiting_for_blocks_is_at_stake_when_a_later_one_would_fit():
    history = book(request("a"), request("b", 1, max_tokens=1))
    assert memory.waits_for_blocks(history, ran({}, "", "ab", free_blocks=2))
    assert not memory.waits_for_blocks(history, ran({}, "", "ab", free_blocks=4))
    assert memory.prompt_alone_fits(history, ran({}, "", "ab", free_blocks=2))
    assert not memory.prompt_alone_fits(history, ran({}, "", "ab", free_blocks=1))


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (1, True)])
def test_at_head_the_rest_of_a_prompt_must_fit_when_it_begins(free, breaks):
    history = book(request("a", 18), revision="head")
    reported = memory.rest_does_not_fit(history, ran({"a": 10}, "a", free_blocks=free))
    assert (reported is not None) is breaks


def test_who_was_aborted_inside_the_step_is_not_accused():
    history = book(request("a", 18), revision="head")
    history.aborts_inside = {"a"}
    step = ran({"a": 2}, "", free_blocks=1, finished={"a": "aborted"})
    assert memory.rest_does_not_fit(history, step) is None
    assert memory.rest_does_not_fit(book(request("a")), ran({}, free_blocks=None)) is None
