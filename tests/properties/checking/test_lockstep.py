"""Lockstep: what a release does differently from its model, block numbers being names."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from schedproof.model.observation import FIELDS, REQUIRED, CacheEvents, Step
from schedproof.properties.checking.lockstep import (
    COMPARED,
    NOT_COMPARED,
    differences,
    equal_at_sight,
    shown,
)

from ..build import decode, idle

WHOLE = Step(
    kind="decode",
    scheduled={"a": 1, "b": 1},
    emitted={"a": 1, "b": 1},
    tkv=9,
    left_pad_blocks={"a": 0, "b": 1},
    waiting=("c", "d"),
    running=("b", "a"),
    prefilling=(),
    paused=("e",),
    preempted=(),
    finished={},
    computed={"a": 9, "b": 5},
    prefix_hit={"b": 4},
    blocks={"a": (1, 2, 3), "b": (1, 4)},
    free_blocks=6,
    reserved_blocks=2,
    slot_blocks={"a": (3,), "b": (4,)},
    prompt_throughput=3,
    decode_throughput=1,
    emitted_at={"a": 1},
    parked=("c",),
    encoder_inputs={"a": (0,)},
    encoder_dropped=("cat",),
    group_blocks={"a": ((0, 5, 6),)},
    group_free_blocks=(4,),
    completes=True,
    deferred=("c",),
    handed_over=("a",),
    over=True,
    cache_events=CacheEvents(entered=("x",)),
    masks={"a": (3, 4)},
    grammars={"a": 3},
)
OTHERWISE: dict[str, Any] = {
    "kind": "prefill",
    "scheduled": {"b": 1, "a": 1},
    "emitted": {"a": 1},
    "tkv": 10,
    "left_pad_blocks": {"a": 0, "b": 0},
    "waiting": ("d", "c"),
    "running": ("a", "b"),
    "prefilling": ("b",),
    "paused": (),
    "preempted": ("e",),
    "finished": {"a": "eos"},
    "computed": {"a": 9, "b": 6},
    "prefix_hit": {"b": 8},
    "blocks": {"a": (1, 2, 3), "b": (2, 4)},
    "free_blocks": 5,
    "reserved_blocks": 0,
    "slot_blocks": {"a": (4,), "b": (3,)},
    "prompt_throughput": 2,
    "decode_throughput": 0,
    "emitted_at": {"a": 3},
    "parked": ("c", "d"),
    "encoder_inputs": {"a": (1,)},
    "encoder_dropped": (),
    "group_blocks": {"a": ((5, 5, 6),)},
    "group_free_blocks": (5,),
    "completes": False,
    "deferred": (),
    "handed_over": (),
    "over": False,
    "cache_events": CacheEvents(entered=("x", "y")),
    "masks": {"a": (3, None)},
    "grammars": {"a": 2},
}


def test_every_field_is_compared():
    assert set(COMPARED) == OTHERWISE.keys() == FIELDS - NOT_COMPARED


def test_who_is_not_listed_has_nothing_and_the_order_of_the_preempted_does_not_matter():
    first = replace(WHOLE, preempted=("a", "b"), prefix_hit={"b": 4, "a": 0}, computed={"a": 9})
    other = replace(WHOLE, preempted=("b", "a"), computed={"a": 9, "b": 0})
    assert differences(first, other) == []


@pytest.mark.parametrize("field", COMPARED)
def test_a_field_that_differs_is_named_and_no_other(field):
    assert differences(WHOLE, WHOLE) == []
    [line] = differences(replace(WHOLE, **{field: OTHERWISE[field]}), WHOLE)
    assert line.startswith(f"{field}: target ")


@pytest.mark.parametrize("field", sorted(set(COMPARED) - REQUIRED - {"tkv"}))
def test_a_field_that_one_of_them_does_not_show_is_not_compared(field):
    without = replace(WHOLE, **{field: None})
    assert differences(without, replace(WHOLE, **{field: OTHERWISE[field]})) == []
    assert differences(replace(WHOLE, **{field: OTHERWISE[field]}), without) == []


def test_both_sides_are_told_in_a_line_each():
    other = replace(WHOLE, waiting=("c",), computed={"a": 9})
    assert differences(other, WHOLE) == [
        "waiting: target [c], model [c, d]",
        "computed: target {'a': 9}, model {'a': 9, 'b': 5}",
    ]


@pytest.mark.parametrize(
    ("seen", "model", "same"),
    [
        (decode("a", tkv=5), decode("a", tkv=5), True),
        (decode("a", tkv=None), decode("a", tkv=0), True),
        (decode("a", tkv=None), decode("a", tkv=5), False),
        (idle(tkv=7), idle(tkv=None), True),
        (idle(tkv=0), idle(), True),
    ],
)
def test_no_tkv_is_zero_and_that_of_an_idle_step_says_nothing(seen, model, same):
    assert (differences(seen, model) == []) == same
    assert (differences(model, seen) == []) == same


def padded(step):
    """The same step of a scheduler that pads: there block 0 is the padding."""
    return replace(step, left_pad_blocks={})


def holding(slots=None, **blocks):
    return decode(*blocks, blocks=blocks, slot_blocks=slots)


@pytest.mark.parametrize(
    ("seen", "model"),
    [
        (holding(a=(7, 3), b=(7, 9)), holding(a=(1, 2), b=(1, 3))),
        (holding({"a": (3,)}, a=(7, 3)), holding({"a": (2,)}, a=(1, 2))),
        (holding({"a": (0, 3)}, a=(7, 3)), holding({"a": (0, 2)}, a=(1, 2))),
        (holding(b=(5,), a=(4,)), holding(a=(1,), b=(2,))),
        (holding({"gone": (8,)}, a=(4,)), holding({"gone": (2,)}, a=(1,))),
    ],
    ids=["shared", "written", "padding", "order of requests", "written by who has left"],
)
def test_blocks_that_differ_in_their_numbers_only_are_the_same(seen, model):
    lines = [line for line in differences(seen, model) if "blocks" in line]
    assert lines == []


def test_where_no_step_pads_a_block_may_be_named_0():
    model = replace(WHOLE, left_pad_blocks=None, slot_blocks=None)
    seen = replace(model, blocks={"a": (0, 1, 2), "b": (0, 3)})
    assert differences(seen, model) == []
    assert differences(replace(seen, blocks={"a": (0, 1, 2), "b": (1, 3)}), model) != []


@pytest.mark.parametrize(
    ("seen", "model", "field"),
    [
        (holding(a=(7,), b=(8,)), holding(a=(1,), b=(1,)), "blocks"),
        (holding(a=(7,), b=(7,)), holding(a=(1,), b=(2,)), "blocks"),
        (padded(holding(a=(0, 7))), padded(holding(a=(1, 2))), "blocks"),
        (padded(holding(a=(7,))), padded(holding(a=(0,))), "blocks"),
        (holding(a=(7, 8)), holding(a=(1,)), "blocks"),
        (holding(a=(7, 7)), holding(a=(1, 2)), "blocks"),
        (holding(a=(7,)), holding(b=(1,)), "blocks"),
        (holding({"a": (7,)}, a=(7, 3)), holding({"a": (2,)}, a=(1, 2)), "slot_blocks"),
        (holding({"a": (0,)}, a=(7,)), holding({"a": (1,)}, a=(1,)), "slot_blocks"),
        (holding({"a": (9,)}, a=(7,)), holding({"a": (1,)}, a=(1,)), "slot_blocks"),
    ],
    ids=[
        *("not shared", "shared", "padding held", "model holds padding", "one more", "one twice"),
        *("another request's", "another of its own", "not written", "none_there's"),
    ],
)
def test_blocks_that_differ_by_more_than_names_are_told_apart(seen, model, field):
    lines = [line.partition(":")[0] for line in differences(seen, model)]
    assert [name for name in lines if name != "scheduled"] == [field]


REQUESTS = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(0, 6), max_size=4).map(tuple), min_size=1
)


@given(REQUESTS, REQUESTS, st.permutations(range(1, 7)))
def test_any_renaming_that_leaves_the_padding_alone_changes_nothing(blocks, slots, names):
    renamed = dict(enumerate(names, 1)) | {0: 0}

    def under_new_names(held):
        return {name: tuple(renamed[block] for block in own) for name, own in held.items()}

    model = decode("a", blocks=blocks, slot_blocks=slots)
    seen = decode("a", blocks=under_new_names(blocks), slot_blocks=under_new_names(slots))
    assert differences(seen, model) == []


@given(REQUESTS, st.data())
def test_two_blocks_under_one_name_are_told_apart(blocks, data):
    used = sorted({block for own in blocks.values() for block in own})
    assume(len(used) > 1)
    first, other, *_ = data.draw(st.permutations(used))
    merged = {
        name: tuple(other if block == first else block for block in own)
        for name, own in blocks.items()
    }
    assert differences(decode("a", blocks=merged), decode("a", blocks=blocks))
    assert differences(decode("a", blocks=blocks), decode("a", blocks=merged))


@pytest.mark.parametrize("hidden", sorted(FIELDS - REQUIRED))
def test_what_a_target_does_not_show_is_taken_from_its_model_too(hidden):
    observes = FIELDS - {hidden}
    model = shown(WHOLE, observes)
    assert getattr(model, hidden) is None
    assert differences(replace(WHOLE, **{hidden: None}), model) == []
    assert shown(WHOLE, FIELDS) == WHOLE


def test_who_shows_where_is_written_but_not_who_holds_it_is_compared_by_names_of_the_step():
    model = shown(holding({"a": (2,)}, a=(1, 2)), FIELDS - {"blocks"})
    assert differences(decode("a", slot_blocks={"a": (9,)}), model) == []
    assert differences(decode("a", slot_blocks={"a": (0,)}), model) != []


def answer(step):
    """The observation as a target answers it."""
    reported: dict[str, Any] = msgspec.to_builtins(step)
    return reported


@pytest.mark.parametrize("field", OTHERWISE)
def test_whatever_differs_is_not_equal_at_sight(field):
    other = replace(WHOLE, **{field: OTHERWISE[field]})
    assert differences(other, WHOLE) != []
    assert not equal_at_sight(answer(other), answer(WHOLE))
    assert not equal_at_sight(answer(WHOLE), answer(other))


def test_a_tkv_that_only_one_of_them_shows_is_not_equal_at_sight():
    hidden = replace(WHOLE, tkv=None)
    assert differences(hidden, WHOLE) != []
    assert not equal_at_sight(answer(hidden), answer(WHOLE))
    assert not equal_at_sight(answer(WHOLE), answer(hidden))


@given(st.sets(st.sampled_from(sorted(FIELDS - REQUIRED - {"tkv"}))))
def test_what_is_equal_at_sight_differs_in_nothing(hidden):
    partly = replace(WHOLE, **dict.fromkeys(hidden))
    for first, other in ((partly, WHOLE), (WHOLE, partly)):
        assert equal_at_sight(answer(first), answer(other))
        assert differences(first, other) == []
