"""The last block of a request is handed out first (V1CP-R40), by example."""

import pytest
from msgspec.structs import replace

from schedproof.properties.vllm.history import given_back
from schedproof.properties.vllm.history.run import VllmState
from schedproof.properties.vllm.predicates.eviction import block_is_evicted, start_is_evicted_first

from .build import book, ran, request

# a gave back three blocks in step 4, and c one block in step 5.
GIVEN_BACK = {1: ("a", 4, 0), 2: ("a", 4, 1), 3: ("a", 4, 2), 9: ("c", 5, 0)}


def before(**tables):
    history = book(*(request(name) for name in "bd"))
    history.last = replace(history.last, blocks=tables)
    history.system_state = VllmState(given_back=GIVEN_BACK)
    return history


def step(*table, hit=0, scheduled=6, **more):
    """b starts with these blocks."""
    tokens = {"b": scheduled} if scheduled else {}
    return ran(tokens, "b", blocks={"b": table}, prefix_hit={"b": hit}, **more)


@pytest.mark.parametrize(
    ("table", "hit", "broken"),
    [
        ((3, 2), 0, None),  # from the end
        ((2, 3), 0, None),  # both in one step
        (
            (1, 3),
            0,
            "block 1 is handed out, the block with index 0 of a, but block 2, with index 1",
        ),
        ((1, 8), 4, None),  # a hit is not handed out
        ((9,), 0, None),  # the only block of another request
        ((8,), 0, None),
    ],
)
def test_a_request_loses_its_last_block_first(table, hit, broken):
    found = start_is_evicted_first(before(), step(*table, hit=hit))
    assert found == (broken and f"{broken}, is still free")


@pytest.mark.parametrize(("table", "exercised"), [((3, 2), True), ((9,), False), ((8,), False)])
def test_the_rule_is_exercised_if_one_of_several_blocks_is_handed_out(table, exercised):
    assert block_is_evicted(before(), step(*table)) is exercised


def test_a_step_that_may_hand_out_blocks_unseen_is_not_judged():
    assert start_is_evicted_first(before(), step(1, 3, preempted=("d",))) is None
    unseen = ran({"b": 6, "d": 6}, "b", blocks={"b": (1, 3)}, prefix_hit={"b": 0})
    assert start_is_evicted_first(before(), unseen) is None
    assert given_back.after(before(), unseen, GIVEN_BACK) == {}


def test_blocks_are_given_back_when_their_table_disappears_unless_another_request_has_them():
    history = before(d=(4, 5), b=(4,))
    history.step = 7
    after = ran({"b": 1}, "b", blocks={"b": (4, 3)})
    expected = {block: GIVEN_BACK[block] for block in (1, 2, 9)} | {5: ("d", 7, 1)}
    assert given_back.after(history, after, GIVEN_BACK) == expected
    assert given_back.after(history, ran({}, blocks=None), GIVEN_BACK) == {}


def test_blocks_that_may_be_a_hit_are_not_judged():
    history = before()
    parked = ran({}, waiting="b", blocks={"b": (1, 3)}, parked=("b",))
    assert start_is_evicted_first(history, parked) is None
    ends = ran({"b": 6}, blocks={"b": (1, 3)}, finished={"b": "error"})  # its blocks are being sent
    assert start_is_evicted_first(history, ends) is None


def test_with_a_connector_blocks_may_be_received_unseen():
    failing = request("d", external=8, tokens_loading=8, load_fails_at=0, parked_since=2)
    history = book(request("b"), failing, running="b", kv_connector=True)
    history.last = replace(history.last, blocks={"d": (4, 5)})
    again = ran({"d": 2}, "b", blocks={"b": (1,)}, finished={"d": "length"}, prefix_hit={"b": 0})
    assert given_back.is_unsure(history, again)
    loads = book(request("b"), request("d", external=8), running="b", kv_connector=True)
    loads.last = replace(loads.last, blocks={})
    assert given_back.is_unsure(loads, ran({}, "b", blocks={}, finished={"d": "error"}))
    assert not given_back.is_unsure(loads, ran({}, "b", waiting="d", blocks={}))


def test_only_whole_blocks_are_followed():
    config = book().config
    assert given_back.are_followed(config)
    assert not given_back.are_followed({**config, "enable_prefix_caching": False})
    assert not given_back.are_followed({**config, "prefix_match_unit": 2})


def test_a_block_that_two_requests_give_back_in_one_step_belongs_to_neither():
    history = before(d=(4, 5), b=(4, 6))
    history.step = 7
    both = ran({}, blocks={})
    assert given_back.after(history, both, {}) == {5: ("d", 7, 1), 6: ("b", 7, 1)}
