"""The checks that project nothing are proven sound, the exact one complete, for any block."""

import pytest

from schedproof.model.spyre import peak
from schedproof.solver.obligation import discharge
from schedproof.solver.spyre.peak_code import largest, reached
from schedproof.solver.spyre.peak_proof import loops, obligations


@pytest.mark.parametrize("block", [1, 2, 64, 100, None])
@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_every_lemma_is_proven_and_guarded(check, block):
    found = list(discharge([*obligations(check, block), *loops(check)]))
    assert {one.name: one.status for one in found} == dict.fromkeys(
        (one.name for one in found), "proven"
    )
    assert len(found) == (21 if check == "exact" else 13)


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("exact")
    assert len({one.name for one in found}) == len(found)
    assert all(one.sentence.endswith(".") for one in found)


@pytest.mark.parametrize(
    ("planted", "largest_holds", "reached_holds"),
    [
        (peak.largest_tkv, True, True),
        (peak.filled_blocks, True, False),  # as much as may come, and more than comes
        (lambda longest, *_: longest, False, False),
    ],
)
def test_a_check_that_says_more_or_less_than_can_come_is_refuted(
    monkeypatch, planted, largest_holds, reached_holds
):
    monkeypatch.setattr(peak, "largest_tkv", planted)
    found = [one.status == "proven" for one in discharge([largest(2, 2), reached(2, 2)])]
    assert found == [largest_holds, reached_holds]
