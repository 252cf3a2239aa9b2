"""A fault in any turn of a loop over requests makes a lemma on the loops fail."""

import importlib
import sys
from itertools import islice

import pytest

from schedproof.model.spyre.model import REVISIONS, admitting_by
from schedproof.model.spyre.peak import CHECKS
from schedproof.solver.smt.execution import UndecidedError, paths
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre import loop_lemmas
from schedproof.solver.spyre.symbolic_state import StepConfiguration
from schedproof.solver.spyre.symbolic_step import Step
from schedproof.tests.mutants.faults import MODEL
from schedproof.tests.mutants.planting import imported_anew


def statuses(file="", line="", instead=""):
    """The status of each lemma on the loops, with a change of the model's text."""
    text = (MODEL / file).read_text("utf-8") if file else ""
    assert not file or text.count(line) == 1
    with imported_anew({file: text.replace(line, instead)} if file else {}):
        lemmas = importlib.import_module("schedproof.solver.spyre.loop_lemmas").obligations
        revision = importlib.import_module("schedproof.model.spyre.model").REVISIONS["sound"]
        every = lemmas(revision, revision.volume_check, 64, 512)
        return {found.name: found.status for found in discharge(every)}


def test_every_lemma_on_the_loops_is_proven_and_guarded():
    assert set(statuses().values()) == {"proven"}
    assert len(statuses()) == 4


EVERY = {
    "CARRIED": [*loop_lemmas.CARRIES_POOL, *loop_lemmas.BY_INDUCTION],
    "ASSUMED": [*loop_lemmas.ASSUMED],
    "EXPRESSIONS": [*loop_lemmas.EXPRESSIONS],
}
OWN = "def volume(tkv, prompt):\n    return max(tkv, prompt)\n"
NEEDED = [(kind, name) for kind in ("CARRIED", "ASSUMED", "EXPRESSIONS") for name in EVERY[kind]]


@pytest.fixture(scope="module")
def revisions(tmp_path_factory):
    """Return every revision, and one with each check that a proof is about."""
    own = tmp_path_factory.mktemp("own") / "own.py"
    own.write_text(OWN, encoding="utf-8")
    checks = (*CHECKS, f"{own}:volume")
    admitted = [admitting_by(REVISIONS["sound"], name) for name in checks]
    return [*REVISIONS.values(), *admitted]


def is_followed(revisions):
    try:
        for revision in revisions:
            loop_lemmas.follow(revision, loop_lemmas.CARRIES_POOL | loop_lemmas.BY_INDUCTION)
    except UndecidedError:
        return False
    return True


def test_the_code_of_every_revision_and_check_is_followed(revisions):
    assert is_followed(revisions)


@pytest.mark.parametrize(("kind", "name"), NEEDED)
def test_every_exception_is_needed(revisions, monkeypatch, kind, name):
    for where in ("CARRIES_POOL", "BY_INDUCTION") if kind == "CARRIED" else (kind,):
        of = getattr(loop_lemmas, where)
        left = of - {name} if kind == "CARRIED" else {key: of[key] for key in of if key != name}
        monkeypatch.setattr(loop_lemmas, where, left)
    assert not is_followed(revisions)


@pytest.mark.parametrize("name", REVISIONS)
def test_a_step_of_each_revision_could_count_in_as_many_ways_as_is_noted(name, monkeypatch):
    monkeypatch.setattr(loop_lemmas, "MORE_WAYS", 0)
    assert is_followed([REVISIONS[name]])
    monkeypatch.setitem(loop_lemmas.WAYS, name, loop_lemmas.WAYS[name] - 1)
    assert not is_followed([REVISIONS[name]])


def function_of(code):
    """The file and the function of a code object, which may be a comprehension within it."""
    return code.co_filename, code.co_qualname.partition(".<locals>.<")[0]


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_function_that_a_step_calls_has_been_followed(revision):
    """The functions are found in two ways: from the text, and by a trace of some of the paths."""
    revision, entered = REVISIONS[revision], set()
    carried = loop_lemmas.CARRIES_POOL | loop_lemmas.BY_INDUCTION
    followed = {*map(function_of, loop_lemmas.follow(revision, carried).entered)}
    step = Step(StepConfiguration(revision), 1)

    def note(frame, *_):
        code = frame.f_code
        if code.co_filename.startswith(str(MODEL)) and code.co_name != "<module>":
            entered.add(function_of(code))

    before = sys.gettrace()
    sys.settrace(note)
    try:
        assert [*islice(paths(step.numbers, step._code, quick=True), 400)]
    finally:
        sys.settrace(before)
    assert {function for _, function in entered - followed} == set()
    assert len(entered) > 20


@pytest.mark.parametrize(
    ("file", "line", "instead", "lemma"),
    [
        (
            *("spyre/forward.py", "if request.computed < request.prompt:"),
            *("if request.computed < request.prompt or len(grown) == 33:", "code_does"),
        ),
        (
            *("spyre/documented.py", "    joining = volumetric.Newcomer("),
            "    members = members[:40]\n    joining = volumetric.Newcomer(",
            "code_does",
        ),
        (
            *("spyre/documented.py", "    joining = volumetric.Newcomer("),
            "    if sum(1 for _ in decoding) == 17:\n        return True\n"
            "    joining = volumetric.Newcomer(",
            "code_does",
        ),
        (
            *("spyre/documented.py", "rectangle_tkv(max(lengths)"),
            *("rectangle_tkv(max([*lengths[:40], *lengths[41:]])", "code_does"),
        ),
        (
            *("spyre/scheduler.py", "for request in leaving:", "for request in leaving[:9]:"),
            "code_does",
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
            "code_does",
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
    assert status == ("unknown" if lemma == "code_does" else "refuted"), found


@pytest.mark.slow
def test_the_lemmas_on_the_loops_are_among_those_of_each_revision():
    from schedproof.solver.spyre.admission_sequences import ADMITS_BY, Setting
    from schedproof.solver.spyre.proofs_by_rule import limit_lemmas

    for revision in REVISIONS:
        setting = Setting(ADMITS_BY[revision], 0, revision=revision)
        names = [lemma.name for group in limit_lemmas("SPY-R07", setting, 64) for lemma in group[1]]
        assert {*statuses()} <= {*names}, revision
