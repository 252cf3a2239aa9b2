"""The proofs are about the code that runs: a fault in it makes a lemma fail.

The tkv that admission goes by covers every member, in all revisions and configurations but one;
a fault in the model's code makes a lemma fail.
"""

from dataclasses import replace

import pytest

from schedproof.model.spyre import documented, peak, release_2_1_2, volumetric
from schedproof.model.spyre.model import REVISIONS
from schedproof.model.spyre.state import Decision
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.admission_lemmas import obligations
from schedproof.solver.spyre.admission_sequences import Setting
from schedproof.solver.spyre.proofs_by_rule import limit_lemmas

CONSULTED = "formula_is_consulted_with_covering_tkv"


def refuted(formula, *names):
    """Whether each of these lemmas on the limit fails; the others are not tried."""
    groups = limit_lemmas("SPY-R07", Setting(formula, 0), 64)
    lemmas = {one.name: one for group in groups for one in group.lemmas}
    return all(one.status != "proven" for one in discharge([lemmas[name] for name in names]))


def each(name, *sizes):
    return [f"{name}_{size}" for size in sizes]


def plant(monkeypatch, revision, **functions):
    """Put other functions into a revision."""
    monkeypatch.setitem(REVISIONS, revision, replace(REVISIONS[revision], **functions))


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


def test_an_admission_that_accepts_everybody_is_refuted_by_every_formula_and_check(monkeypatch):
    monkeypatch.setattr(documented, "fits_volume", always)
    seen = "sees_requests_as_they_are_1"
    assert refuted("common_base", f"formula_{seen}", "walk_counts_every_request_1")
    assert refuted("rounded", "lone_newcomer_must_fit", f"check_{seen}")


def test_an_admission_that_forgets_a_member_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def all_but_the_first(config, revision, current, decoding, newcomer):
        return whole(config, revision, current, decoding[1:], newcomer)

    monkeypatch.setattr(documented, "fits_volume", all_but_the_first)
    assert refuted("common_base", *each("formula_sees_requests_as_they_are", 1, 2, 3))
    assert refuted("rounded", *each("check_sees_requests_as_they_are", 1, 2, 3))


def test_an_admission_by_another_tkv_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def by_an_older_tkv(config, revision, current, decoding, newcomer):
        return whole(config, revision, current - 1, decoding, newcomer)

    monkeypatch.setattr(documented, "fits_volume", by_an_older_tkv)
    seen = each("formula_sees_requests_as_they_are", 1, 2, 3)
    assert refuted("common_base", CONSULTED, *seen)


def test_a_refusal_in_front_of_the_formula_lets_nothing_join(monkeypatch):
    whole = documented.fits_volume

    def refuses_early(config, revision, current, decoding, newcomer):
        if newcomer.prompt > 4096 or decoding[0].remaining > 20_000:
            return False
        return whole(config, revision, current, decoding, newcomer)

    monkeypatch.setattr(documented, "fits_volume", refuses_early)
    groups = limit_lemmas("SPY-R07", Setting("common_base", 0), 64)
    lemmas = [one for group in groups for one in group.lemmas if one.name.endswith(("_2", "_3"))]
    assert {one.status for one in discharge(lemmas)} == {"proven"}


def test_a_formula_from_another_base_is_refuted(monkeypatch):
    def from_the_batch(self, tkv, decoding, newcomer, block_size):
        ends = [self.member(max, tkv, tkv, tkv, member, block_size) for member in decoding]
        own = self.newcomer(tkv, tkv, newcomer.prompt, newcomer.remaining, block_size)
        return volumetric.Projection(own, ends)

    monkeypatch.setattr(volumetric.Formula, "__call__", from_the_batch)
    assert refuted("common_base", "covers_decoding", "covers_newcomer")


@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_a_check_that_accepts_everybody_is_refuted(monkeypatch, check):
    monkeypatch.setitem(peak.CHECKS, check, always)
    assert refuted(check, "lone_newcomer_must_fit")


def test_a_walk_over_the_ends_that_stops_early_is_refuted(monkeypatch):
    def first_end_only(decoding, newcomer, block_size, largest):
        offsets = [newcomer.prompt % block_size]
        return largest(newcomer.prompt, offsets, newcomer.remaining, block_size)

    monkeypatch.setattr(peak, "largest_volume", first_end_only)
    assert refuted("rounded", "walk_counts_all_active_at_each_end_1")


@pytest.mark.slow
def test_a_tkv_between_two_ends_that_is_a_token_short_is_refuted(monkeypatch):
    exact = peak.largest_tkv
    monkeypatch.setattr(peak, "largest_tkv", lambda *asked: exact(*asked) - 1)
    nearest = each("check_uses_nearest_offsets", 1, 2, 3)
    assert refuted("exact", "lone_newcomer_must_fit", *nearest)
    monkeypatch.setattr(peak, "filled_blocks", lambda *asked: exact(asked[0], [0], *asked[2:]))
    assert refuted("rounded", "check_counts_longest_filled_blocks")


def failing_of_revision(revision, *, interleave):
    lemmas = obligations(REVISIONS[revision], interleave=interleave)
    return {one.name: one.status for one in discharge(lemmas) if one.status != "proven"}


def status_in(revision, name, *, interleave):
    """What becomes of one lemma; the others are not tried."""
    lemmas = obligations(REVISIONS[revision], interleave=interleave)
    [found] = discharge([one for one in lemmas if one.name == name])
    return found.status


@pytest.mark.slow
@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_lemma_is_proven_and_guarded_but_for_the_tkv_of_the_last_prompt(revision, interleave):
    by_the_last_prompt = revision == "2.5.2" and not interleave
    expected = {"chunk_tkv_covers_every_member": "refuted"} if by_the_last_prompt else {}
    assert failing_of_revision(revision, interleave=interleave) == expected


def test_a_remembered_tkv_that_is_a_token_short_is_refuted(monkeypatch):
    whole = documented.max_tkv
    monkeypatch.setattr(documented, "max_tkv", lambda *asked: whole(*asked) - 1)
    assert status_in("2.1.2", "decode_tkv_covers_every_member", interleave=True) == "refuted"
    assert status_in("sound", CONSULTED, interleave=True) == "refuted"


def test_a_chunk_that_reports_the_prompt_alone_is_refuted(monkeypatch):
    monkeypatch.setattr(release_2_1_2, "tkv_after_last_chunk", lambda prompt, *_: prompt)
    assert status_in("2.1.2", "chunk_tkv_covers_every_member", interleave=False) == "refuted"


def test_an_admission_that_asks_nothing_is_refuted(monkeypatch):
    plant(monkeypatch, "2.1.2", satisfies_last_chunk=lambda *_: True)
    for interleave in (True, False):
        assert status_in("2.1.2", CONSULTED, interleave=interleave) == "refuted"


@pytest.mark.slow
def test_two_prefills_in_a_row_are_refuted_where_decode_steps_go_between(monkeypatch):
    monkeypatch.setattr(documented, "must_interleave", lambda *_: False)
    assert status_in("2.5.2", CONSULTED, interleave=True) == "refuted"
    assert failing_of_revision("sound", interleave=True) == {}  # it looks at the batch itself


def test_a_prefill_that_waits_between_its_chunks_is_refuted():
    at_last_chunk = documented.is_held_to_last_chunk
    asks_again = replace(REVISIONS["2.1.2"], is_held_to_last_chunk=at_last_chunk)
    names = [one.name for one in obligations(asks_again, interleave=False)]
    assert "prefill_is_uninterrupted" not in names
    planted = documented.may_prefill
    try:
        documented.may_prefill = lambda config, revision, state, one: planted(
            config, asks_again, state, one
        )
        assert status_in("2.1.2", "prefill_is_uninterrupted", interleave=False) != "proven"
    finally:
        documented.may_prefill = planted


def test_a_request_that_joins_before_its_last_chunk_is_refuted(monkeypatch):
    plant(monkeypatch, "sound", progress=lambda config, one, end: (one.prompt, end))
    name = "formula_is_consulted_at_last_chunk"
    assert status_in("sound", name, interleave=True) == "refuted"


def test_a_step_that_idles_beside_a_decode_batch_is_refuted(monkeypatch):
    idle = Decision("idle")
    plant(monkeypatch, "2.1.2", decide=lambda config, revision, state: (state, idle))
    name = "step_is_idle_only_if_none_decodes"
    assert status_in("2.1.2", name, interleave=True) != "proven"


def test_what_is_asked_depends_on_what_is_remembered():
    def names(revision, interleave):
        return [one.name for one in obligations(REVISIONS[revision], interleave=interleave)]

    assert names("sound", interleave=True) == [
        "formula_is_consulted_with_covering_tkv",
        "formula_is_consulted_at_last_chunk",
    ]
    kept = [
        "decode_tkv_covers_every_member",
        "step_is_idle_only_if_none_decodes",
        "formula_is_consulted_with_covering_tkv",
        "formula_is_consulted_at_last_chunk",
    ]
    assert names("2.1.2", interleave=True) == names("2.5.2", interleave=True) == kept
    alone = [
        "decode_tkv_covers_every_member",
        "chunk_tkv_covers_every_member",
        "step_is_idle_only_if_none_decodes",
        "formula_is_consulted_with_covering_tkv",
        "prefill_is_uninterrupted",
        "formula_is_consulted_at_last_chunk",
    ]
    assert names("2.1.2", interleave=False) == alone
