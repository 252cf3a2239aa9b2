"""The lemmas are proven for the sound formulas, each guarded; what is unsound fails one."""

from itertools import product

import pytest
import z3

from schedproof.solver.spyre import formulas
from schedproof.solver.spyre.lemmas import discharge, obligations


@pytest.mark.parametrize(
    ("formula", "block"),
    [*(product(("2.1.2", "common_base"), (2, 16, 64, 100))), ("common_base", 1)],
)
def test_every_lemma_of_a_sound_formula_is_proven(formula, block):
    assert {one.name: one.status for one in discharge(formula, block)} == {
        one.name: "proven" for one in obligations(formula, block)
    }


@pytest.mark.parametrize(
    ("formula", "failing"),
    [
        ("2.1.0", {"covers_newcomer"}),
        ("2.0.1", {"covers_newcomer"}),
        ("1.10.0", {"covers_decoding", "covers_newcomer", "ordered"}),
    ],
)
def test_an_unsound_formula_fails_the_lemma_that_is_wrong_for_it(formula, failing):
    failed = {one.name for one in discharge(formula) if one.status != "proven"}
    assert failed == failing


@pytest.mark.parametrize("formula", ["document_own_tkv", "document_realigned", "document_max_tkv"])
def test_no_reading_of_the_document_is_proven(formula):
    assert "refuted" in {one.status for one in discharge(formula)}


def test_the_smallest_sound_slack_of_the_common_base_is_none(monkeypatch):
    def one_token_less(numbers, lengths, tkv, decoding, newcomer):
        own, others = formulas.common_base(numbers, lengths, tkv, decoding, newcomer)
        return own - 1, others

    monkeypatch.setitem(formulas.FORMULAS, "common_base", one_token_less)
    failed = {one.name for one in discharge("common_base") if one.status == "refuted"}
    assert failed == {"covers_newcomer"}


def test_a_lemma_whose_guard_holds_too_is_unguarded(monkeypatch):
    def generous(numbers, lengths, tkv, decoding, newcomer):
        own, others = formulas.common_base(numbers, lengths, tkv, decoding, newcomer)
        return own + 9 * lengths.block, others

    monkeypatch.setitem(formulas.FORMULAS, "common_base", generous)
    status = {one.name: one.status for one in discharge("common_base")}
    assert status["covers_newcomer"] == "unguarded"


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("2.1.2")
    assert len({one.name for one in found}) == len(found)
    assert all(one.sentence.endswith(".") for one in found)
    assert all(isinstance(fact, z3.BoolRef) for one in found for fact in one.claim())
