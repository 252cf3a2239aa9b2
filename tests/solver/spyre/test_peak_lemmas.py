"""The checks that project nothing are proven sound, the exact one complete, for any block."""

import pytest

from schedproof.model.spyre import peak
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.peak_lemmas import (
    check_value_is_reached,
    code,
    loops,
    nearest_offsets_are_found,
    no_tkv_exceeds_check,
    obligations,
)
from schedproof.tests.solver.spyre.test_hidden_faults import status


@pytest.mark.slow
@pytest.mark.parametrize("block", [64, pytest.param(None, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("check", ["exact", "rounded"])
def test_every_lemma_is_proven_and_guarded(check, block):
    found = list(discharge([*obligations(check, block), *code(check), *loops(check)]))
    assert {lemma.name: lemma.status for lemma in found} == dict.fromkeys(
        (request.name for request in found), "proven"
    )
    assert len(found) == (20 if check == "exact" else 14)


def test_every_lemma_has_a_name_of_its_own_and_a_sentence():
    found = obligations("exact")
    assert len({request.name for request in found}) == len(found)
    assert all(lemma.sentence.endswith(".") for lemma in found)


def plus(tokens):
    real = peak.largest_of_two
    return lambda *given: real(*given) + tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "largest_holds", "reached_holds"),
    [
        (plus(0), True, True),
        (plus(1), True, False),
        (plus(-1), False, False),
        # As much as may come, and more than comes.
        (
            lambda longest, below, above, ends, block: ((longest + ends - 1) // block + 1) * block,
            True,
            False,
        ),
        # The last step alone.
        (
            lambda longest, below, above, ends, block: (
                (longest + ends - 1) // block * block + (below - (1 - ends) % block) % block + 1
            ),
            False,
            True,
        ),
    ],
)
def test_a_check_that_says_more_or_less_than_can_come_is_refuted(
    monkeypatch, planted, largest_holds, reached_holds
):
    monkeypatch.setattr(peak, "largest_of_two", planted)
    lemmas = discharge([no_tkv_exceeds_check(64), check_value_is_reached(64)])
    assert [lemma.status != "refuted" for lemma in lemmas] == [largest_holds, reached_holds]


@pytest.mark.parametrize("name", ["next_below", "next_above"])
@pytest.mark.parametrize("place", [0, -1])
def test_an_offset_that_is_not_the_next_is_refuted(monkeypatch, name, place):
    monkeypatch.setattr(peak, name, lambda offsets, turn: offsets[place])
    assert [found.status for found in discharge([nearest_offsets_are_found(64)])] == ["refuted"]


def test_a_position_instead_of_an_offset_is_refuted(monkeypatch):
    monkeypatch.setattr(peak, "next_below", lambda offsets, turn: turn - 1)
    assert [found.status for found in discharge([nearest_offsets_are_found(64)])] == ["refuted"]


def test_a_refusal_for_a_volume_that_no_batch_reaches_is_refuted():
    """The limit is compared with the volume of all requests a block later, after the loop."""
    line = "    return peak\n\n\ndef largest_tkv"
    needless = (
        "    if 0 < ends and all_requests[0][0] > newcomer.remaining:\n"
        "        whole = largest(longest + block_size, offsets, ends, block_size)\n"
        "        peak = max(peak, len(offsets) * whole)\n"
    )
    changes = [("spyre/peak.py", line, needless + line)]
    assert status("check_compares_each_end_2", changes, formula="exact")[0] == "refuted"
