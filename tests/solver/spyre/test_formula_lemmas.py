"""The lemmas are proven for the sound formulas, each guarded; what is unsound fails one.

The lemmas for any number of requests are about the code: a fault in it makes one fail.
"""

from dataclasses import replace
from itertools import product

import pytest
import z3

from schedproof.model.spyre import volumetric
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.spyre.state import Sequence
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre import formula_lemmas, symbolic_admission
from schedproof.solver.spyre.formula_lemmas import (
    accepted_request_fits_alone,
    decode_step_adds_one_token,
    fewer_requests_still_fit,
    obligations,
    walk_accepts_only_what_fits,
)


def status_of(formula, block=64):
    return {lemma.name: lemma.status for lemma in discharge(obligations(formula, block))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "block"),
    [
        *product(("2.1.2", "common_base"), (64, None)),
        *(("common_base", 1), ("2.1.0+64", 64)),
    ],
)
def test_every_lemma_of_a_sound_formula_is_proven(formula, block):
    assert status_of(formula, block) == {
        lemma.name: "proven" for lemma in obligations(formula, block)
    }


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
    # With 63 tokens of slack and blocks of any size Z3 does not know.
    for block in (64,) if formula == "2.1.0+63" else (64, None):
        status = status_of(formula, block)
        assert {name for name, how in status.items() if how != "proven"} == failing


@pytest.mark.slow
@pytest.mark.parametrize("formula", [name for name in volumetric.FORMULAS if "document" in name])
def test_no_reading_of_the_document_is_proven(formula):
    assert "refuted" in status_of(formula).values()


def test_the_smallest_sound_slack_of_the_common_base_is_none(monkeypatch):
    def one_token_less(*requests):
        return volumetric.newcomer_common_base(*requests) - 1

    planted = replace(volumetric.common_base, newcomer=one_token_less)
    monkeypatch.setitem(volumetric.FORMULAS, "common_base", planted)
    status = status_of("common_base")
    assert {name for name, how in status.items() if how != "proven"} == {"covers_newcomer"}


def one_block_more(monkeypatch):
    def more(*requests):
        return volumetric.newcomer_common_base(*requests) + 64

    planted = replace(volumetric.common_base, newcomer=more)
    monkeypatch.setitem(volumetric.FORMULAS, "common_base", planted)


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["common_base+1", "2.1.2+1", "common_base+576", "common_base"])
def test_a_formula_that_projects_more_than_it_must_is_proven(formula, monkeypatch):
    if "+" not in formula:
        one_block_more(monkeypatch)
    assert set(status_of(formula).values()) == {"proven"}


def test_a_lemma_whose_guard_holds_too_is_unguarded(monkeypatch):
    def of_no_batch(numbers, decoding):
        numbers.facts.append(z3.BoolVal(False))
        return batch(numbers, decoding)

    batch = formula_lemmas.batch_of
    monkeypatch.setattr(formula_lemmas, "batch_of", of_no_batch)
    covers = [lemma for lemma in obligations("common_base") if lemma.name.startswith("covers")]
    assert [status(number) for number in covers] == ["unguarded", "unguarded"]


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("2.1.2")
    assert len({request.name for request in found}) == len(found)
    assert all(lemma.sentence.endswith(".") for lemma in found)
    assert all(isinstance(fact, z3.BoolRef) for lemma in found for fact in lemma.claim())


def status(lemma):
    [request] = discharge([lemma])
    return request.status


def test_each_is_proven_and_guarded():
    assert [
        status(request())
        for request in (
            walk_accepts_only_what_fits,
            accepted_request_fits_alone,
            fewer_requests_still_fit,
            decode_step_adds_one_token,
        )
    ] == ["proven"] * 4


def test_a_walk_that_counts_one_less_accepts_all_or_stops_early_is_refuted(monkeypatch):
    whole = volumetric.answer_at
    for planted in (
        lambda tkv, to_come, newcomer, limit: whole(tkv, to_come - 1, newcomer, limit),
        lambda *_: True,
        lambda *_: None,
        lambda tkv, to_come, newcomer, limit: to_come * tkv <= limit,
        lambda tkv, to_come, newcomer, limit: whole(tkv, to_come, newcomer, limit + 1),
    ):
        monkeypatch.setattr(volumetric, "answer_at", planted)
        assert status(walk_accepts_only_what_fits()) == "refuted", planted


def test_a_door_that_lets_in_a_token_too_many_is_refuted(monkeypatch):
    whole = SpyreModel.refusal

    def shorter(self, request):
        return whole(self, request._replace(max_tokens=request.max_tokens - 1))

    monkeypatch.setattr(SpyreModel, "refusal", shorter)
    assert status(accepted_request_fits_alone()) == "refuted"


def test_a_request_that_counts_a_step_too_few_is_refuted(monkeypatch):
    remaining = property(lambda self: self.max_tokens - 2 * self.generated)
    monkeypatch.setattr(Sequence, "remaining", remaining)
    assert status(decode_step_adds_one_token()) == "refuted"


@pytest.mark.parametrize("name", ["covers_decoding", "covers_newcomer"])
def test_a_rounding_that_rounds_down_is_refuted(monkeypatch, name):
    """The lemmas have arithmetic of their own, so it does not change with the code."""
    monkeypatch.setattr(volumetric, "round_up", lambda tokens, block: tokens // block * block)
    lemma = getattr(formula_lemmas, name)("common_base", symbolic_admission.lengths_of(64))
    assert [found.status for found in discharge([lemma])] == ["refuted"]
