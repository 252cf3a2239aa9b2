"""Blocks held, shared and found, by example."""

import pytest

from schedproof.properties.vllm.predicates import blocks

from .build import book, ran, request

COMMON = (("s", 8),)


def test_nobody_holds_the_null_block():
    history = book(request("a"))
    assert blocks.null_block_held(history, ran({"a": 6}, blocks={"a": (1, 2)})) is None
    assert "block 0" in (blocks.null_block_held(history, ran({"a": 6}, blocks={"a": (1, 0)})) or "")


@pytest.mark.parametrize(("held", "breaks"), [((1, 2), False), ((1,), True), ((1, 2, 3), True)])
def test_who_runs_holds_the_blocks_of_what_is_computed(held, breaks):
    step = ran({"a": 6}, "a", computed={"a": 6}, blocks={"a": held})
    assert (blocks.holds_wrong_number(book(request("a")), step) is not None) is breaks


@pytest.mark.parametrize(
    ("own", "held", "breaks"),
    [
        ((("s", 8), ("b", 4)), (1, 2, 4), False),
        ((("s", 4), ("b", 8)), (1, 2, 4), True),
        ((("s", 8), ("b", 4)), (2, 1, 4), True),
        ((("s", 8), ("b", 4)), (1, 2, 3), True),
    ],
)
def test_blocks_are_shared_only_by_what_is_the_same_up_to_their_end(own, held, breaks):
    history = book(request("a", 11, content=(("s", 8), ("a", 3))), request("b", 12, content=own))
    step = ran({}, "ab", computed={"a": 11, "b": 12}, blocks={"a": (1, 2, 3), "b": held})
    assert (blocks.shared_wrongly(history, step) is not None) is breaks


def test_a_block_that_is_still_written_to_is_not_shared():
    history = book(request("a", 8, content=COMMON), request("b", 8, content=COMMON))
    step = ran({}, "ab", computed={"a": 6, "b": 8}, blocks={"a": (1, 2), "b": (1, 2)})
    reported = blocks.shared_wrongly(history, step)
    assert reported is not None
    assert reported.endswith("share block 2, which is still written to")


@pytest.mark.parametrize(("hit", "breaks"), [(0, False), (4, False), (8, True), (3, True)])
def test_a_hit_has_whole_blocks_and_never_the_last_token(hit, breaks):
    step = ran({"a": 8 - hit}, "a", prefix_hit={"a": hit})
    assert (blocks.hit_too_long(book(request("a", 8)), step) is not None) is breaks


@pytest.mark.parametrize(("hit", "breaks"), [(0, True), (4, True), (8, False)])
def test_what_a_running_request_holds_is_found(hit, breaks):
    old = request("a", 10, 10, 1, content=(("s", 8), ("a", 2)))
    new = request("b", 10, content=(("s", 8), ("b", 2)))
    history = book(old, new, running="a")
    step = ran({"a": 1, "b": 10 - hit}, "ab", prefix_hit={"b": hit})
    assert (blocks.hit_missed(history, step) is not None) is breaks
    assert blocks.shares_with_running(history, step)
