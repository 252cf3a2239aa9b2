"""The lemmas are proven for the sound formulas, each guarded; what is unsound fails one."""

from dataclasses import replace
from itertools import product

import pytest
import z3

from schedproof.model.spyre import volumetric
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.symbols import lengths_of
from schedproof.solver.spyre.volumetric_proof import length_within_tkv, obligations


def status_of(formula: str, block: int | None = 64) -> dict[str, str]:
    return {one.name: one.status for one in discharge(obligations(formula, block))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "block"),
    [
        *product(("2.1.2", "common_base"), (2, 64, 100, None)),
        *(("common_base", 1), ("2.1.0+64", 64)),
    ],
)
def test_every_lemma_of_a_sound_formula_is_proven(formula, block):
    assert status_of(formula, block) == {one.name: "proven" for one in obligations(formula, block)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "failing"),
    [
        ("2.1.0", {"covers_newcomer"}),
        ("2.1.0+63", {"covers_newcomer"}),
        ("2.0.1", {"covers_newcomer"}),
        ("0.8.0", {"covers_decoding", "covers_newcomer"}),
        ("1.10.0", {"covers_decoding", "covers_newcomer"}),
    ],
)
def test_an_unsound_formula_fails_the_lemma_that_is_wrong_for_it(formula, failing):
    # With 63 tokens of slack and blocks of any size Z3 does not know of the weaker lemma.
    for block in (64,) if formula == "2.1.0+63" else (64, None):
        status = status_of(formula, block)
        assert {name for name, how in status.items() if how != "proven"} == failing


@pytest.mark.parametrize("formula", [name for name in volumetric.FORMULAS if "document" in name])
def test_no_reading_of_the_document_is_proven(formula):
    assert "refuted" in status_of(formula).values()


@pytest.mark.parametrize("block", [1, 2, 64, 100, None])
def test_no_member_is_longer_than_the_tkv_of_its_batch(block):
    [one] = discharge([length_within_tkv(lengths_of(block))])
    assert one.status == "proven"


def test_the_smallest_sound_slack_of_the_common_base_is_none(monkeypatch):
    def one_token_less(*requests):
        return volumetric.newcomer_common_base(*requests) - 1

    planted = replace(volumetric.common_base, newcomer=one_token_less)
    monkeypatch.setitem(volumetric.FORMULAS, "common_base", planted)
    status = status_of("common_base")
    assert {name for name, how in status.items() if how != "proven"} == {"covers_newcomer"}


def test_a_lemma_whose_guard_holds_too_is_unguarded(monkeypatch):
    def generous(tkv, base, prompt, remaining, block):
        own = volumetric.newcomer_common_base(tkv, base, prompt, remaining, block)
        return own + block * 9

    planted = replace(volumetric.common_base, newcomer=generous)
    monkeypatch.setitem(volumetric.FORMULAS, "common_base", planted)
    assert status_of("common_base")["covers_newcomer"] == "unguarded"


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("2.1.2")
    assert len({one.name for one in found}) == len(found)
    assert all(one.sentence.endswith(".") for one in found)
    assert all(isinstance(fact, z3.BoolRef) for one in found for fact in one.claim())
