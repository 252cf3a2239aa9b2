"""The shape of a failure: the same for other numbers and names, another for other words."""

import pytest

from schedproof.properties.checking.failure_signature import shape
from schedproof.properties.rules.predicate import Broken


def of(message, rule="SPY-R07", requests=("r0", "r1", "r2")):
    return shape(Broken(rule, 3, message), requests)


@pytest.mark.parametrize(
    ("one", "other"),
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
def test_numbers_names_and_lengths_of_lists_do_not_matter(one, other):
    assert of(one) == of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("r0 waits", "r0 is lost"),
        ("crashed: KeyError: 'r0'", "crashed: AssertionError: 'r0'"),
        ("2 x 261 = 522 > 520", "2 x 261 = 522"),
    ],
)
def test_words_matter(one, other):
    assert of(one) != of(other)


def test_the_rule_matters():
    assert of("r0 waits") != of("r0 waits", rule="SPY-R08")


def test_of_lockstep_the_fields_that_differ_are_the_shape():
    one = of("kind: target decode, model idle; scheduled: target [('r0', 1)], model []", "ALL-R07")
    other = of("kind: target idle, model prefill; scheduled: target [], model [5]", "ALL-R07")
    assert one == other == "ALL-R07: kind, scheduled"
    assert one != of("kind: target decode, model idle", "ALL-R07")


def test_a_lockstep_failure_at_the_door_has_its_own_shape():
    said = "r1 is accepted, the model refuses it: $.prompt: 9 tokens"
    assert of(said, "ALL-R07") == "ALL-R07: @ is accepted, the model refuses it: $.prompt: # tokens"


def test_an_id_inside_a_word_or_a_number_inside_a_name_is_no_id_and_no_number():
    assert of("a over b", requests=("a",)) == of("z over b", requests=("z",))
    assert "kv2" in of("kv2 is full")


def test_ids_with_signs_of_regular_expressions_are_names():
    assert of("x(1)+ waits", requests=("x(1)+",)) == of("r0 waits")
