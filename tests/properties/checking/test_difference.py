"""How two steps differ: its class, what two such differences have in common, and the words."""

from typing import Any

import pytest

from schedproof.model.observation import Step
from schedproof.properties.checking.difference import CRASH, of_answers, of_steps
from schedproof.properties.checking.failure_signature import shape
from schedproof.properties.rules.predicate import Broken

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
    difference = between(**changes)
    assert (difference.kind, difference.step) == (kind, 3)
    assert difference.words[0].startswith(words)


def test_the_gravest_class_names_the_step_and_every_field_is_kept():
    difference = between(scheduled={"a": 1}, tkv=5, free_blocks=6)
    assert difference.kind == "decision"
    assert [field.field for field in difference.fields] == ["scheduled", "tkv", "free_blocks"]
    assert difference.message == "scheduled: b 1 only on A"


def test_preempted_requests_are_told_by_their_names_however_long_these_are():
    difference = of_steps(0, step(preempted=("second", "r1")), step(preempted=("r1", "r2")))
    assert difference is not None
    assert difference.message == "preempted: second only on A, r2 only on B"


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
    difference = of_steps(0, step(blocks=blocks), step(blocks={"a": (1,)}))
    assert difference is not None
    assert "… (199)" in difference.message
    assert len(difference.message) < 100


def of(message, rule="SPY-R07", requests=("r0", "r1", "r2")):
    return shape(Broken(rule, 3, message), requests)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("2 x 261 = 522 > 520", "5 x 26304 = 131520 > 131072"),
        ("r0 waits, free 12 blocks", "r2 waits, free 7 blocks"),
        ("[r0, r1] wait", "[r2] wait"),
        ("running {r0: 3, r1: 5}", "running {r2: 1}"),
        ("sum 64 + 128 + 3", "sum 64 + 1"),
        ("-3 blocks are free", "12 blocks are free"),
        ("1,024 tokens", "7 tokens"),
    ],
)
def test_numbers_names_and_lengths_of_lists_do_not_matter(first, other):
    assert of(first) == of(other)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("r0 waits", "r0 is lost"),
        ("crashed: KeyError: 'r0'", "crashed: AssertionError: 'r0'"),
        ("2 x 261 = 522 > 520", "2 x 261 = 522"),
    ],
)
def test_words_matter(first, other):
    assert of(first) != of(other)


def test_the_rule_matters():
    assert of("r0 waits") != of("r0 waits", rule="SPY-R08")


def test_of_lockstep_the_fields_that_differ_are_the_shape():
    difference = of(
        "kind: target decode, model idle; scheduled: target [('r0', 1)], model []", "ALL-R07"
    )
    other = of("kind: target idle, model prefill; scheduled: target [], model [5]", "ALL-R07")
    assert difference == other == "ALL-R07: kind, scheduled"
    assert difference != of("kind: target decode, model idle", "ALL-R07")


def test_a_lockstep_failure_at_the_door_has_its_own_shape():
    message = "r1 is accepted, but the model refuses it: $.prompt: 9 tokens"
    assert (
        of(message, "ALL-R07")
        == "ALL-R07: @ is accepted, but the model refuses it: $.prompt: # tokens"
    )


def test_an_id_inside_a_word_or_a_number_inside_a_name_is_no_id_and_no_number():
    assert of("a over b", requests=("a",)) == of("z over b", requests=("z",))
    assert "kv2" in of("kv2 is full")


def test_ids_with_signs_of_regular_expressions_are_names():
    assert of("x(1)+ waits", requests=("x(1)+",)) == of("r0 waits")
