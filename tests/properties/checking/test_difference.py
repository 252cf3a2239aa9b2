"""How two steps differ: its class, what two such differences have in common, and the words."""

from typing import Any

import pytest

from schedproof.model.observation import Step
from schedproof.properties.checking.difference import CRASH, of_answers, of_steps

SAME: dict[str, Any] = {
    "kind": "decode",
    "scheduled": {"a": 1, "b": 1},
    "waiting": ("c", "d"),
    "tkv": 4,
    "computed": {"a": 4, "b": 3},
    "free_blocks": 7,
}


def step(**changes):
    return Step(**(SAME | changes))


def between(**changes):
    return of_steps(3, step(), step(**changes))


def test_steps_that_are_alike_have_no_difference():
    assert between() is None


def test_a_field_that_one_does_not_show_is_no_difference():
    assert between(computed=None, free_blocks=None) is None


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"scheduled": {"a": 1}}, "decision", "scheduled: b 1 only on A"),
        ({"scheduled": {"a": 1, "b": 2}}, "decision", "scheduled: b 1 on A and 2 on B"),
        ({"waiting": ("c",)}, "decision", "waiting: d only on A"),
        ({"scheduled": {"b": 1, "a": 1}}, "order", "scheduled: in the order [a 1 b 1] on A, "),
        ({"waiting": ("d", "c")}, "order", "waiting: in the order c, d on A, d, c on B"),
        ({"tkv": 5}, "padding", "tkv: 4 on A, 5 on B"),
        ({"computed": {"a": 4}}, "bookkeeping", "computed: b 3 only on A"),
        ({"free_blocks": 6}, "bookkeeping", "free_blocks: 7 on A, 6 on B"),
    ],
)
def test_a_difference_has_the_class_of_its_field(changes, kind, words):
    found = between(**changes)
    assert (found.kind, found.step) == (kind, 3)
    assert found.words[0].startswith(words)


def test_the_gravest_class_names_the_step_and_every_field_is_kept():
    found = between(scheduled={"a": 1}, tkv=5, free_blocks=6)
    assert found.kind == "decision"
    assert [one.field for one in found.fields] == ["scheduled", "tkv", "free_blocks"]
    assert found.message == "scheduled: b 1 only on A"


def test_differences_of_one_shape_differ_in_numbers_and_names_only():
    first = between(scheduled={"a": 1}, waiting=("b", "c", "d"))
    second = of_steps(8, step(scheduled={"x": 3, "y": 1}), step(scheduled={"y": 1}))
    assert second is not None
    assert first.shape == second.shape == "decision: which are scheduled"


def test_other_tokens_for_the_same_requests_are_another_shape():
    assert between(scheduled={"a": 1, "b": 2}).shape == "decision: how many are scheduled"


def test_a_difference_of_the_queues_alone_is_called_after_them():
    assert between(waiting=("c",)).shape == "decision: waiting"


def test_crashes_with_the_same_words_but_other_requests_are_one_shape():
    first = of_answers(CRASH, 1, "A: the scheduler raised at 'step': r1 has 3 blocks", ["r1"])
    second = of_answers(CRASH, 9, "A: the scheduler raised at 'step': r2 has 12 blocks", ["r2"])
    other = of_answers(CRASH, 1, "B: the scheduler raised at 'step': r1 has 3 blocks", ["r1"])
    assert first.shape == second.shape != other.shape


def test_long_lists_of_blocks_are_cut_for_a_reader():
    blocks = {"a": tuple(range(1, 200))}
    found = of_steps(0, step(blocks=blocks), step(blocks={"a": (1,)}))
    assert found is not None
    assert "… (199)" in found.message
    assert len(found.message) < 100
