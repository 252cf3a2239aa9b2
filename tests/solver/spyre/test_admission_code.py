"""The proofs are about the code that runs: a fault in it makes a lemma fail."""

import pytest

from schedproof.model.spyre import documented, peak, volumetric
from schedproof.solver.obligation import discharge
from schedproof.solver.spyre.limit_proof import groups
from schedproof.solver.spyre.volumetric import Setting


def failing(formula: str) -> set[str]:
    lemmas = [one for group in groups("SPY-R07", Setting(formula, 0), 64) for one in group.lemmas]
    return {one.name for one in discharge(lemmas) if one.status != "proven"}


def always(*_, **__):
    return True


def stops_early(projection, limit):
    """The walk asks for the first that ends."""
    first = min([*projection.decoding, projection.newcomer])
    return (len(projection.decoding) + 1) * first <= limit


def counts_one_less(projection, limit):
    batch = len(projection.decoding)
    return all(batch * tkv <= limit for tkv in [*projection.decoding, projection.newcomer])


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["common_base", "2.1.2"])
@pytest.mark.parametrize("walk", [always, stops_early, counts_one_less])
def test_a_walk_that_accepts_too_much_is_refuted(monkeypatch, formula, walk):
    monkeypatch.setattr(volumetric, "accepts", walk)
    counted = {f"counting_{size}" for size in (1, 2, 3, 4)}
    assert counted | {"asked"} >= failing(formula) >= {"counting_2"}


@pytest.mark.slow
def test_an_admission_that_accepts_everybody_is_refuted_by_every_formula_and_check(monkeypatch):
    monkeypatch.setattr(documented, "fits_volume", always)
    assert failing("common_base") >= {"asks_1", "counting_1"}
    assert failing("rounded") >= {"alone", "check_asks_1"}


@pytest.mark.slow
def test_an_admission_that_forgets_a_member_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def all_but_the_first(config, revision, current, decoding, newcomer):
        return whole(config, revision, current, decoding[1:], newcomer)

    monkeypatch.setattr(documented, "fits_volume", all_but_the_first)
    assert failing("common_base") >= {"asks_1", "asks_2", "asks_3"}
    assert failing("rounded") >= {"check_asks_1", "check_asks_2", "check_asks_3"}


@pytest.mark.slow
def test_an_admission_by_another_tkv_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def by_an_older_tkv(config, revision, current, decoding, newcomer):
        return whole(config, revision, current - 1, decoding, newcomer)

    monkeypatch.setattr(documented, "fits_volume", by_an_older_tkv)
    assert failing("common_base") == {"asked", "asks_1", "asks_2", "asks_3"}


@pytest.mark.slow
def test_a_formula_from_another_base_is_refuted(monkeypatch):
    def from_the_batch(self, tkv, decoding, newcomer, block_size):
        ends = [self.member(max, tkv, tkv, tkv, member, block_size) for member in decoding]
        own = self.newcomer(tkv, tkv, newcomer.prompt, newcomer.remaining, block_size)
        return volumetric.Projection(own, ends)

    monkeypatch.setattr(volumetric.Formula, "__call__", from_the_batch)
    assert failing("common_base") == {"covers_decoding", "covers_newcomer"}


@pytest.mark.slow
@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_a_check_that_accepts_everybody_is_refuted(monkeypatch, check):
    monkeypatch.setitem(peak.CHECKS, check, always)
    assert failing(check) == {"alone"}


@pytest.mark.slow
def test_a_walk_over_the_ends_that_stops_early_is_refuted(monkeypatch):
    def first_end_only(decoding, newcomer, block_size, largest):
        offsets = [newcomer.prompt % block_size]
        return largest(newcomer.prompt, offsets, newcomer.remaining, block_size)

    monkeypatch.setattr(peak, "largest_volume", first_end_only)
    assert "walk_1" in failing("rounded")


@pytest.mark.slow
def test_a_tkv_between_two_ends_that_is_a_token_short_is_refuted(monkeypatch):
    exact = peak.largest_tkv
    monkeypatch.setattr(peak, "largest_tkv", lambda *asked: exact(*asked) - 1)
    assert failing("exact") == {"alone", "goes_by_1", "goes_by_2", "goes_by_3"}
    monkeypatch.setattr(peak, "filled_blocks", lambda *asked: exact(asked[0], [0], *asked[2:]))
    assert "filled" in failing("rounded")
