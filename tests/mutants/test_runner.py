"""Failures of the selfcheck, and that none passes silently."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.solver.systems import explored_systems
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants import engines, runner
from schedproof.tests.mutants.agreement import Row
from schedproof.tests.mutants.checkups import checkup
from schedproof.tests.mutants.faults import RUNS, Fault, mutants_of
from schedproof.tests.mutants.runner import (
    PARTS,
    SEEDS,
    Answer,
    Result,
    ask,
    judge,
    mutant,
    report,
    results,
    tasks,
    vacuous,
    verdict,
)

RULES = [(system, rule) for system in SYSTEMS for rule in load(system) if rule.checked]
PLAIN = Fault("spyre", "a fault", rule="SPY-R22", revision="sound")
UNEXPLORED = Fault("spyre", "a fault", rule="SPY-R22", excused={"explorer": "beyond its scopes"})


def answers(**engines_that_find):
    return [Answer(engine, yes, 0.1, "somehow") for engine, yes in engines_that_find.items()]


@pytest.mark.parametrize(
    ("fault", "detected", "wrong"),
    [
        (PLAIN, {"hypothesis": True, "explorer": True}, None),
        (PLAIN, {"hypothesis": True}, None),
        (PLAIN, {"hypothesis": False, "explorer": False}, "a fault (SPY-R22) survives"),
        (PLAIN, {"hypothesis": False}, "a fault (SPY-R22) survives"),
        (PLAIN, {}, "a fault (SPY-R22) survives"),
        (
            PLAIN,
            {"hypothesis": False, "explorer": True},
            "a fault (SPY-R22) is not found by hypothesis: somehow",
        ),
        (
            PLAIN,
            {"hypothesis": True, "explorer": False},
            "a fault (SPY-R22) is not found by explorer: somehow",
        ),
        (UNEXPLORED, {"hypothesis": True, "explorer": False}, None),
        (UNEXPLORED, {"hypothesis": False, "explorer": False}, "a fault (SPY-R22) survives"),
        (
            UNEXPLORED,
            {"hypothesis": False, "explorer": True},
            "a fault (SPY-R22) is not found by hypothesis: somehow",
        ),
    ],
)
def test_a_fault_has_to_be_found_by_every_engine_that_is_not_excused(fault, detected, wrong):
    assert verdict(fault, answers(**detected)) == wrong


def fakes(explores=True, **detected):
    """Return engines that answer as given, and the list of their calls."""
    calls: list[str] = []

    def engine(name):
        def answer(fault, target=None, *rest, alone=False):
            calls.append(
                " ".join([name, *(str(argument) for argument in rest), *["alone"] * alone])
            )
            return Answer(name, detected[name], 0.0, "somehow")

        return answer

    names = ("seeds", "hypothesis", "explorer", "workloads")
    named = {f"by_{name}": engine(name) for name in names}
    return SimpleNamespace(explorable=lambda fault: explores, **named), calls


FULL = f"hypothesis {SEEDS} ci"


@pytest.mark.parametrize(
    ("fault", "quick", "detected", "calls"),
    [
        (PLAIN, False, {"hypothesis": True, "explorer": True}, [FULL, "explorer"]),
        (UNEXPLORED, False, {"hypothesis": True}, [FULL]),
        (PLAIN, True, {"seeds": True}, ["seeds"]),
        (
            PLAIN,
            True,
            {"seeds": False, "hypothesis": True},
            ["seeds", "hypothesis [0] quick alone"],
        ),
        (
            PLAIN,
            True,
            {"seeds": False, "hypothesis": False, "explorer": False},
            [*("seeds", "hypothesis [0] quick alone", "explorer"), *(f"{FULL} alone", "explorer")],
        ),
        (
            Fault("spyre", "", rule="SPY-R22", excused={"hypothesis": "rare"}),
            True,
            {"seeds": False, "explorer": True},
            ["seeds", "explorer"],
        ),
    ],
)
def test_one_engine_is_enough_for_a_quick_check(fault, quick, detected, calls):
    engines, called = fakes(**detected)
    ask(engines, fault, None, quick)
    assert called == calls


def test_an_engine_that_is_excused_answers_with_the_reason():
    engines, _ = fakes(hypothesis=True)
    assert ask(engines, UNEXPLORED, None, False)[1] == Answer(
        "explorer", False, 0.0, "beyond its scopes"
    )


def test_the_explorer_is_not_asked_for_a_target_around_the_model():
    fake, calls = fakes(explores=False, hypothesis=True)
    ask(fake, PLAIN, None, False)
    assert calls == [FULL]
    around = next(fault for fault in mutants_of("spyre") if fault.rule == "ALL-R10")
    assert not engines.explorable(around)
    assert engines.explorable(PLAIN)


@pytest.mark.slow
def test_a_fault_is_found_by_its_rule():
    right = next(fault for fault in mutants_of("spyre") if fault.rule == "ALL-R03")
    [answer] = judge(right, quick=True)
    assert (answer.engine, answer.detected) == ("seeds", True)


def test_a_run_is_kept_for_faults_that_exist():
    for path in RUNS.iterdir():
        kept = json.loads(path.read_text())
        assert {*kept} <= {fault.label for fault in mutants_of(path.stem)}


def test_a_run_that_is_kept_has_a_fault_which_the_model_itself_has_not():
    fault = next(candidate for candidate in mutants_of("vllm") if engines.kept_run(candidate))
    [run] = engines.kept_run(fault)
    assert not engines.breaks(fault, engines.ModelTarget(), run)
    assert judge(fault, quick=True)[0].how == "1 runs"


@pytest.fixture
def little(monkeypatch):
    """Little to sample, and one small scope to explore."""

    monkeypatch.setitem(PROFILES, "ci", Profile(20, 10, 10, 0))
    monkeypatch.setattr(runner, "SEEDS", range(2))
    monkeypatch.setattr(engines, "WITNESS_SEEDS", 2)
    first_scopes = {name: [replace(checkup(name)[0], requests=2)] for name in explored_systems()}
    monkeypatch.setattr(engines, "checkup", first_scopes.__getitem__)


@pytest.mark.slow
def test_a_fault_that_changes_nothing_is_found_by_no_engine(little):
    for answer in ask(engines, PLAIN, engines.ModelTarget(), False):
        assert not answer.detected


@pytest.mark.slow
def test_a_fault_that_another_rule_names_is_not_found_by_sampling():
    right = next(fault for fault in mutants_of("spyre") if fault.rule == "SPY-R13")
    wrong = Fault(**{**vars(right), "rule": "SPY-R02", "excused": {"explorer": "not asked"}})
    assert judge(wrong, quick=False)[0].how == "named SPY-R13 first"


@pytest.mark.slow
def test_every_rule_gets_its_witnesses_and_what_breaks_is_reported(little):
    answers_of, broken = engines.witnesses("spyre", "documented", quick=False)
    assert any(line.startswith("SPY-R07 breaks on documented: ") for line in broken)
    assert "SPY-R07" in answers_of


def everything():
    """A witness and a fault for every checked rule."""
    return [
        Result("found", None, (what, system, rule.id))
        for system, rule in RULES
        for what in ("witness", "mutant")
    ]


def test_a_rule_without_a_witness_or_a_fault_is_vacuous():
    assert vacuous(everything()) == []
    assert len(vacuous([])) == 2 * len(RULES)
    for what in ("witness", "mutant"):
        missing = (what, "spyre", "SPY-R22")
        lacking = [result for result in everything() if result.proves != missing]
        assert vacuous(lacking) == [f"SPY-R22 (spyre) is vacuous: it has no {what}"]


def test_a_fault_that_survives_proves_nothing():
    missing = ("mutant", "spyre", "SPY-R22")
    partial = [result for result in everything() if result.proves != missing]
    partial.append(Result("not found", "a fault (SPY-R22) survives", missing))
    assert vacuous(partial) == ["SPY-R22 (spyre) is vacuous: it has no mutant"]


def reported(capsys, listed, parts=PARTS):
    code = report(listed, parts)
    return code, capsys.readouterr().out.splitlines()


AGREE = Row("SPY-R07", "sound", "limit 9", "none found", "broken", "broken")


def test_without_a_fault_the_exit_code_is_0(capsys):
    code, lines = reported(capsys, [*everything(), Result(AGREE.line, AGREE.fault)])
    assert code == 0
    assert not any("FAULT" in line for line in lines)
    assert lines[-1].startswith(f"no faults in {2 * len(RULES) + 1} results ")
    remark = "hypothesis none found, explorer broken, Z3 broken (a sample need not meet it)"
    assert f"agree    SPY-R07  sound, limit 9: {remark}" in lines


def test_engines_that_disagree_are_a_fault():
    differ = Row("SPY-R07", "sound", "limit 9", "none found", "holds", "broken")
    assert differ.fault == (
        "SPY-R07, sound, limit 9: Z3 has a counterexample, explorer says that it holds"
    )


@pytest.mark.parametrize("parts", [PARTS, PARTS[:1]], ids=["all", "one part"])
def test_any_fault_is_exit_1_and_repeated_at_the_end(capsys, parts):
    code, lines = reported(capsys, [*everything(), Result("a line", "it survives")], parts)
    assert code == 1
    assert "FAULT a line" in lines
    assert lines[-2] == "FAULT it survives"
    assert lines[-1].startswith("1 faults in ")


def test_a_vacuous_rule_is_a_fault_only_where_witnesses_and_faults_are_judged(capsys):
    some = [result for result in everything() if result.proves != ("mutant", "spyre", "SPY-R22")]
    code, lines = reported(capsys, some)
    assert (code, lines[-2]) == (1, "FAULT SPY-R22 (spyre) is vacuous: it has no mutant")
    assert reported(capsys, some, ("mutants",))[0] == 0


def test_nothing_judged_is_no_success(capsys):
    assert reported(capsys, [], ("agreement",))[0] == 1


@pytest.mark.slow
def test_a_fault_that_cannot_be_planted_is_reported_before_any_is_judged(capsys, monkeypatch):
    monkeypatch.setattr(runner, "problems", lambda systems: ["stale"])
    monkeypatch.setattr(runner, "results", lambda todo, jobs: pytest.fail("judged"))
    monkeypatch.setattr("sys.argv", ["runner", "--system", "generic", "--only", "mutants"])
    assert runner.main() == 1
    assert capsys.readouterr().out == "stale\n"


def test_results_come_from_processes():
    easy = next(n for n, fault in enumerate(mutants_of("spyre")) if fault.rule == "SPY-R14")
    [[result]] = results([(mutant, ("spyre", easy, True))], 1)
    assert (result.fault, result.proves) == (None, ("mutant", "spyre", "SPY-R14"))


def test_every_fault_every_formula_and_the_witnesses_are_judged():
    names = [(work.__name__, *args) for work, args in tasks(PARTS, False)]
    assert len(names) == len({*names})
    assert {args for args in names if args[0] == "mutant"} == {
        ("mutant", system, number, False)
        for system in SYSTEMS
        for number in range(len(mutants_of(system)))
    }
    assert {
        ("witness", "spyre", "sound", False),
        ("witness", "spyre", "2.5.2", False),
        ("witness", "vllm", "documented", False),
        ("lockstep_witness", "spyre", "2.1.2"),
        ("agreement", "decided_rows"),
    } <= {*names}
    bugs = [args for _, args in tasks(["known-bugs"], False)]
    assert len(bugs) == sum(bool(fault.bug) for system in SYSTEMS for fault in mutants_of(system))


def test_a_fault_that_needs_a_workload_is_sought_by_its_workload_only():
    fault = Fault("spyre", "", rule="SPY-R22", workload="crowd")
    for quick in (True, False):
        engines, called = fakes(workloads=True, hypothesis=True)
        assert [answer.engine for answer in ask(engines, fault, None, quick)] == ["workloads"]
        assert called == ["workloads"]


@pytest.mark.parametrize(
    ("system", "needed", "workload"),
    [
        ("nano_vllm", "brim", "brim"),
        ("nano_vllm", "brim", "idle"),
        ("generic", "whole", "whole"),
        ("vllm", "operated", "operated"),
    ],
)
def test_a_fault_of_size_is_found_by_its_workload_and_not_by_another(system, needed, workload):
    fault = next(fault for fault in mutants_of(system) if fault.workload == needed)
    [answer] = judge(Fault(**{**vars(fault), "workload": workload}), quick=False)
    assert answer.detected is (workload == needed)
