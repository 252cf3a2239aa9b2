"""The checks that project nothing are proven sound, the exact one complete, for any block."""

import re
from pathlib import Path

import pytest

from schedproof.solver.obligation import discharge
from schedproof.solver.spyre import volumetric_proof
from schedproof.solver.spyre.peak_proof import obligations


@pytest.mark.parametrize("block", [1, 2, 64, 100, None])
@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_every_lemma_is_proven_and_guarded(check, block):
    found = list(discharge(obligations(check, block)))
    assert {one.name: one.status for one in found} == dict.fromkeys(
        (one.name for one in found), "proven"
    )
    assert len(found) == (15 if check == "exact" else 9)


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("exact")
    assert len({one.name for one in found}) == len(found)
    assert all(one.sentence.endswith(".") for one in found)


def test_the_page_on_the_check_names_every_lemma():
    page = Path(__file__).parents[3] / "docs" / "volumetric.md"
    proven = page.read_text(encoding="utf-8").partition("## What is proven")[2]
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*(?:_\d)?)`", proven))
    proofs = volumetric_proof.obligations("2.1.2"), obligations("exact"), obligations("rounded")
    lemmas = {one.name for proof in proofs for one in proof}
    spans = {f"{name}_{size}" for name, most in SPANS.items() for size in range(1, most + 1)}
    assert lemmas - spans <= named
    assert spans <= lemmas


# Named by the first and the last.
SPANS = {"asks": 3, "counting": 4}
