"""The checks that project nothing are proven sound, the exact one complete, for any block."""

import pytest

from schedproof.solver.obligation import discharge
from schedproof.solver.spyre.peak_proof import loops, obligations


@pytest.mark.parametrize("block", [1, 2, 64, 100, None])
@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_every_lemma_is_proven_and_guarded(check, block):
    found = list(discharge([*obligations(check, block), *loops(check)]))
    assert {one.name: one.status for one in found} == dict.fromkeys(
        (one.name for one in found), "proven"
    )
    assert len(found) == (18 if check == "exact" else 13)


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("exact")
    assert len({one.name for one in found}) == len(found)
    assert all(one.sentence.endswith(".") for one in found)
