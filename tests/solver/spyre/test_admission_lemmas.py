"""The volumetric check takes every request into account: a fault in its code makes a lemma fail."""

import pytest

from schedproof.model.spyre import peak, volumetric
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.admission_sequences import Setting
from schedproof.solver.spyre.proofs_by_rule import limit_lemmas


def refuted(formula, *names):
    """Whether each of these lemmas on the limit fails; the others are not tried."""
    groups = limit_lemmas("SPY-R07", Setting(formula, 0), 64)
    lemmas = {lemma.name: lemma for group in groups for lemma in group.lemmas}
    return all(lemma.status != "proven" for lemma in discharge([lemmas[name] for name in names]))


def always(*_, **__):
    return True


def stops_early(projection, limit):
    """The walk asks for the first that ends."""
    first = min([*projection.decoding, projection.newcomer])
    return (len(projection.decoding) + 1) * first <= limit


def counts_one_less(projection, limit):
    batch = len(projection.decoding)
    return all(batch * tkv <= limit for tkv in [*projection.decoding, projection.newcomer])


@pytest.mark.parametrize("formula", ["common_base", "2.1.2"])
@pytest.mark.parametrize("walk", [always, stops_early, counts_one_less])
def test_a_walk_that_accepts_too_much_is_refuted(monkeypatch, formula, walk):
    monkeypatch.setattr(volumetric, "accepts", walk)
    assert refuted(formula, "walk_counts_every_request_2")


def test_a_formula_that_forgets_a_member_is_refuted(monkeypatch):
    whole = volumetric.Formula.__call__

    def all_but_the_first(self, tkv, decoding, newcomer, block_size):
        return whole(self, tkv, decoding[1:], newcomer, block_size)

    monkeypatch.setattr(volumetric.Formula, "__call__", all_but_the_first)
    assert refuted("common_base", "formula_projects_every_member_1")


def test_a_formula_from_another_base_is_refuted(monkeypatch):
    def from_the_batch(self, tkv, decoding, newcomer, block_size):
        ends = [self.member(max, tkv, tkv, tkv, member, block_size) for member in decoding]
        own = self.newcomer(tkv, tkv, newcomer.prompt, newcomer.remaining, block_size)
        return volumetric.Projection(own, ends)

    monkeypatch.setattr(volumetric.Formula, "__call__", from_the_batch)
    assert refuted("common_base", "covers_decoding", "formula_projects_every_member_2")


@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_a_check_that_accepts_everybody_is_refuted(monkeypatch, check):
    monkeypatch.setitem(peak.CHECKS, check, always)
    assert refuted(check, "lone_newcomer_must_fit")


def test_a_walk_over_the_ends_that_stops_early_is_refuted(monkeypatch):
    def first_end_only(decoding, newcomer, block_size, largest):
        offsets = [newcomer.prompt % block_size]
        return largest(newcomer.prompt, offsets, newcomer.remaining, block_size)

    monkeypatch.setattr(peak, "largest_volume", first_end_only)
    assert refuted("rounded", "check_compares_each_end_1")


@pytest.mark.slow
def test_a_tkv_between_two_ends_that_is_a_token_short_is_refuted(monkeypatch):
    exact = peak.largest_tkv
    monkeypatch.setattr(peak, "largest_tkv", lambda *asked: exact(*asked) - 1)
    assert refuted("exact", "lone_newcomer_must_fit", "check_uses_nearest_offsets")
    monkeypatch.setattr(peak, "filled_blocks", lambda *asked: exact(asked[0], [0], *asked[2:]))
    assert refuted("rounded", "check_counts_longest_filled_blocks")
