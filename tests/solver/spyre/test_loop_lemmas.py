"""A fault in any turn of a loop over requests makes a lemma on the loops fail."""

import importlib

import pytest

from schedproof.model.spyre.model import REVISIONS
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre import loop_lemmas
from schedproof.tests.mutants.faults import MODEL
from schedproof.tests.mutants.planting import imported_anew


def statuses(file="", line="", instead=""):
    """The status of each lemma on the loops, with a change of the model's text."""
    text = (MODEL / file).read_text("utf-8") if file else ""
    assert not file or text.count(line) == 1
    with imported_anew({file: text.replace(line, instead)} if file else {}):
        lemmas = importlib.import_module("schedproof.solver.spyre.loop_lemmas").obligations
        revision = importlib.import_module("schedproof.model.spyre.model").REVISIONS["sound"]
        return {found.name: found.status for found in discharge(lemmas(revision, 64))}


def test_every_lemma_on_the_loops_is_proven_and_guarded():
    assert set(statuses().values()) == {"proven"}
    assert len(statuses()) == 4


def test_every_exception_of_the_check_of_loops_is_needed():
    assert {*loop_lemmas.told_apart()} == loop_lemmas.APART | loop_lemmas.BY_INDUCTION


@pytest.mark.parametrize(
    ("file", "line", "instead", "lemma"),
    [
        (
            *("spyre/forward.py", "if request.computed < request.prompt:"),
            *("if request.computed < request.prompt or len(grown) == 33:", "loops_treat"),
        ),
        (
            *("spyre/documented.py", "    joining = volumetric.Newcomer("),
            "    members = members[:40]\n    joining = volumetric.Newcomer(",
            "loops_treat",
        ),
        (
            *("spyre/documented.py", "    joining = volumetric.Newcomer("),
            "    if sum(1 for _ in decoding) == 17:\n        return True\n"
            "    joining = volumetric.Newcomer(",
            "loops_treat",
        ),
        (
            *("spyre/documented.py", "rectangle_tkv(max(lengths)"),
            *("rectangle_tkv(max([*lengths[:40], *lengths[41:]])", "loops_treat"),
        ),
        (
            *("spyre/scheduler.py", "for request in leaving:", "for request in leaving[:9]:"),
            "loops_treat",
        ),
        (
            "spyre/volumetric.py",
            *(
                "        to_come -= 1\n",
                "        to_come -= 2 if to_come == 20 else 1\n",
                "walk_goes_on",
            ),
        ),
        (
            "spyre/scheduler.py",
            "        state = state._replace(running=without(state.running, request.id))\n",
            "        rest = without(state.running, request.id)\n"
            "        state = state._replace(running=rest[1:] if len(rest) > 40 else rest)\n",
            "loops_treat",
        ),
        (
            "spyre/scheduler.py",
            "        state = state._replace(running=without(state.running, request.id))\n",
            "        state = state._replace(running=without(state.running, request.id), tkv=0)\n",
            "leaving_only",
        ),
        (
            "spyre/peak.py",
            *("        longest = max(longest, tokens)\n", "", "each_turn"),
        ),
        (
            "spyre/peak.py",
            "            peak = max(peak, len(offsets) *",
            "            peak = max(peak, min(len(offsets), 10) *",
            "each_turn",
        ),
    ],
)
def test_a_fault_in_a_late_turn_of_a_loop_is_refuted(file, line, instead, lemma):
    found = statuses(file, line, instead)
    [status] = [status for name, status in found.items() if name.startswith(lemma)]
    assert status == "refuted", found


def test_the_lemmas_on_the_loops_are_among_those_of_each_revision():
    from schedproof.solver.spyre.admission_sequences import ADMITS_BY, Setting
    from schedproof.solver.spyre.proofs_by_rule import limit_lemmas

    for revision in REVISIONS:
        setting = Setting(ADMITS_BY[revision], 0, revision=revision)
        names = [lemma.name for group in limit_lemmas("SPY-R07", setting, 64) for lemma in group[1]]
        assert {*statuses()} <= {*names}, revision
