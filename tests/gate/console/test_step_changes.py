"""What is new in a step."""

import pytest
from msgspec.structs import replace

from schedproof.gate.console.step_lines import StepLines, step_news
from schedproof.model.observation import Step

CONFIG = {"block_size": 4, "max_batch_tkv": 40}


def decode(tkv, *names, **seen):
    return Step(kind="decode", scheduled=dict.fromkeys(names or ("a", "b"), 1), tkv=tkv, **seen)


def news(step, last=None, **config):
    return step_news(7, step, last, CONFIG | config)


@pytest.mark.parametrize(
    ("before", "now", "tkv", "jumps"),
    [
        (None, 5, (None, 5), False),
        (5, 6, (5, 6), False),
        (5, 5, None, False),
        (5, 7, (5, 7), True),
        (9, 5, (9, 5), True),
        (5, None, None, False),
        (5, 0, None, False),
        (0, 5, (None, 5), False),
    ],
)
def test_a_tkv_jumps_where_it_does_not_grow_by_one(before, now, tkv, jumps):
    last = Step(kind="decode", scheduled={"a": 1}, tkv=before)
    found = news(Step(kind="decode", scheduled={"a": 1}, tkv=now), last)
    assert (found.tkv, found.jumps) == (tkv, jumps)


def test_the_first_token_of_another_block_is_a_border():
    last = decode(9, computed={"a": 8, "b": 9, "c": 4})
    step = Step(kind="mixed", scheduled={"a": 1, "b": 1, "c": 2, "d": 1})
    assert news(step, last).borders == ("a",)
    assert news(step, last, block_size=9).borders == ("b",)
    assert news(step, decode(9)).borders == ()  # no request says how much they had
    assert news(step).borders == ()


def test_the_volume_is_the_batch_times_the_tkv_of_a_decode_step():
    assert (news(decode(20)).volume, news(decode(20)).over) == (40, False)
    assert (news(decode(21)).volume, news(decode(21)).over) == (42, True)
    assert news(Step(kind="prefill", scheduled={"a": 8}, tkv=50)).volume is None
    assert step_news(0, decode(21), None, {"block_size": 4}).volume is None


def test_fields_are_told_when_they_change_and_events_whenever_they_are():
    last = decode(5, waiting=("c",), paused=(), preempted=("d",), finished={})
    again = decode(6, waiting=("c",), paused=("e",), preempted=("d",), finished={})
    assert news(again, last).fields == {"paused": ("e",), "preempted": ("d",)}
    assert news(last).fields == {"waiting": ("c",), "preempted": ("d",)}


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, True),
        ({"tkv": 8}, False),
        ({"tkv": 5}, True),
        ({"names": ("a",)}, False),
        ({"names": ("b", "a")}, False),
        ({"waiting": ("c",)}, False),
        ({"finished": {"a": "eos"}}, False),
    ],
)
def test_a_decode_step_is_alike_where_nothing_else_happens(changes, alike):
    given = {"tkv": 6, "names": ("a", "b"), "waiting": ()} | changes
    step = decode(given.pop("tkv"), *given.pop("names"), **given)
    assert repeats(step, decode(5, waiting=())) == alike


def test_steps_at_a_border_or_newly_over_the_limit_are_not_alike():
    assert not repeats(decode(6), decode(5, computed={"a": 4, "b": 5}))
    assert not repeats(decode(21), decode(20))
    assert repeats(decode(22), decode(21)) == 1
    assert not repeats(decode(6))


def test_a_step_repeats_the_one_before_the_last_with_all_that_changed():
    chunk = Step(kind="prefill", scheduled={"c": 8}, left_pad_blocks={"c": 1})
    padded = decode(6, left_pad_blocks={"a": 0})
    assert repeats(padded, decode(5, left_pad_blocks={"a": 0}), chunk) == 2
    assert not repeats(padded, decode(5, left_pad_blocks={"a": 1}), chunk)
    assert not repeats(
        padded, decode(5, left_pad_blocks={"a": 0}), replace(chunk, finished={"d": "eos"})
    )


def repeats(step, *before):
    """After how many steps this one occurs again."""
    lines = StepLines(lambda _: None, CONFIG, fold=True)
    for number, earlier in enumerate(before):
        lines(number, earlier)
    return lines.repeats(news(step, before[-1] if before else None))
