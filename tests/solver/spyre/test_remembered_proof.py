"""The tkv that admission goes by covers every member, in all revisions and configurations but one;
a fault in the model's code makes a lemma fail."""

from dataclasses import replace
from typing import Any

import pytest

from schedproof.model.spyre import documented, release_2_1_2
from schedproof.model.spyre.model import REVISIONS
from schedproof.model.spyre.state import Decision
from schedproof.solver.obligation import discharge
from schedproof.solver.spyre.remembered_proof import obligations


def failing(revision: str, *, interleave: bool) -> dict[str, str]:
    asked = obligations(REVISIONS[revision], interleave=interleave)
    return {one.name: one.status for one in discharge(asked) if one.status != "proven"}


def plant(monkeypatch: pytest.MonkeyPatch, revision: str, **functions: Any) -> None:
    """Other functions in a revision."""
    monkeypatch.setitem(REVISIONS, revision, replace(REVISIONS[revision], **functions))


@pytest.mark.slow
@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_lemma_is_proven_and_guarded_but_for_the_tkv_of_the_last_prompt(revision, interleave):
    by_the_last_prompt = revision == "2.5.2" and not interleave
    expected = {"chunk_keeps": "refuted"} if by_the_last_prompt else {}
    assert failing(revision, interleave=interleave) == expected


@pytest.mark.slow
def test_a_remembered_tkv_that_is_a_token_short_is_refuted(monkeypatch):
    whole = documented.max_tkv
    monkeypatch.setattr(documented, "max_tkv", lambda *asked: whole(*asked) - 1)
    assert failing("2.1.2", interleave=True) == {"decode_keeps": "refuted"}
    assert failing("sound", interleave=True) == {"asked": "refuted"}


@pytest.mark.slow
def test_a_chunk_that_reports_the_prompt_alone_is_refuted(monkeypatch):
    monkeypatch.setattr(release_2_1_2, "tkv_after_last_chunk", lambda prompt, *_: prompt)
    assert failing("2.1.2", interleave=False) == {"chunk_keeps": "refuted"}


@pytest.mark.slow
def test_an_admission_that_asks_nothing_is_refuted(monkeypatch):
    plant(monkeypatch, "2.1.2", satisfies_last_chunk=lambda *_: True)
    for interleave in (True, False):
        assert failing("2.1.2", interleave=interleave)["asked"] == "refuted"


@pytest.mark.slow
def test_two_prefills_in_a_row_are_refuted_where_decode_steps_go_between(monkeypatch):
    monkeypatch.setattr(documented, "must_interleave", lambda *_: False)
    assert failing("2.5.2", interleave=True) == {"asked": "refuted"}
    assert failing("sound", interleave=True) == {}  # it looks at the batch itself


@pytest.mark.slow
def test_a_prefill_that_waits_between_its_chunks_is_refuted():
    at_last_chunk = documented.is_held_to_last_chunk
    asks_again = replace(REVISIONS["2.1.2"], is_held_to_last_chunk=at_last_chunk)
    names = [one.name for one in obligations(asks_again, interleave=False)]
    assert "goes_on" not in names
    planted = documented.may_prefill
    try:
        documented.may_prefill = lambda config, revision, state, one: planted(
            config, asks_again, state, one
        )
        assert "goes_on" in failing("2.1.2", interleave=False)
    finally:
        documented.may_prefill = planted


def test_a_request_that_joins_before_its_last_chunk_is_refuted(monkeypatch):
    plant(monkeypatch, "sound", progress=lambda config, one, end: (one.prompt, end))
    assert failing("sound", interleave=True) == {"joins": "refuted"}


@pytest.mark.slow
def test_a_step_that_idles_beside_a_decode_batch_is_refuted(monkeypatch):
    idle = Decision("idle")
    plant(monkeypatch, "2.1.2", decide=lambda config, revision, state: (state, idle))
    assert "idle_forgets" in failing("2.1.2", interleave=True)


def test_what_is_asked_depends_on_what_is_remembered():
    def names(revision, interleave):
        return [one.name for one in obligations(REVISIONS[revision], interleave=interleave)]

    assert names("sound", interleave=True) == ["asked", "joins"]
    kept = ["decode_keeps", "idle_forgets", "asked", "joins"]
    assert names("2.1.2", interleave=True) == names("2.5.2", interleave=True) == kept
    alone = ["decode_keeps", "chunk_keeps", "idle_forgets", "asked", "goes_on", "joins"]
    assert names("2.1.2", interleave=False) == alone
