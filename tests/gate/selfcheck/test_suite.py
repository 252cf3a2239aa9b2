"""`schedproof selfcheck`: what is a fault of the suite, and that it does not pass in silence."""

import io
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
from rich.console import Console

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.selfcheck import run as selfcheck_command
from schedproof.gate.selfcheck import suite
from schedproof.gate.selfcheck.agreement import Row
from schedproof.gate.selfcheck.run import PARTS, answered, vacuous
from schedproof.gate.selfcheck.suite import (
    BEYOND,
    Answer,
    Killed,
    Witnessed,
    kill,
    lockstep_witness,
    mutants,
    witnesses,
)
from schedproof.properties.mutants.mutant import Mutant, replaced
from schedproof.solver.systems import SystemSpace, space_of
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

from ...command_line import Run

RULES = [(system, rule) for system in SYSTEMS for rule in load(system) if rule.checked]
EXCUSED = next(iter(BEYOND["explorer"]))


def answers(**found):
    return tuple(Answer(engine, yes, 0.1, "somehow") for engine, yes in found.items())


def killed(name="a fault", rule="SPY-R22", system="spyre", **found):
    return Killed(system, rule, name, "", answers(**found))


def witnessed(rule="SPY-R22", system="spyre", **found):
    return Witnessed(system, rule, "sound", answers(**found))


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (killed(hypothesis=True, explorer=True), None),
        (killed(hypothesis=True), None),
        (killed(hypothesis=False, explorer=False), "a fault (SPY-R22) survives"),
        (killed(hypothesis=False), "a fault (SPY-R22) survives"),
        (killed(), "a fault (SPY-R22) survives"),
        (
            killed(hypothesis=False, explorer=True),
            "a fault (SPY-R22) is not found by hypothesis: somehow",
        ),
        (
            killed(hypothesis=True, explorer=False),
            "a fault (SPY-R22) is not found by explorer: somehow",
        ),
        (killed(EXCUSED, hypothesis=True, explorer=False), None),
        (killed(EXCUSED, hypothesis=False, explorer=False), f"{EXCUSED} (SPY-R22) survives"),
        (
            killed(EXCUSED, hypothesis=False, explorer=True),
            f"{EXCUSED} (SPY-R22) is not found by hypothesis: somehow",
        ),
    ],
)
def test_a_mutant_has_to_be_found_by_every_engine_that_is_not_excused(one, fault):
    assert one.fault == fault


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (witnessed(hypothesis=True, explorer=True), None),
        (witnessed(hypothesis=True, explorer=False), None),
        (witnessed(explorer=True), None),
        (witnessed(hypothesis=False, explorer=False), "SPY-R22 is never exercised"),
        (witnessed(), "SPY-R22 is never exercised"),
    ],
)
def test_a_witness_has_to_occur_in_one_engine(one, fault):
    assert one.fault == fault


def test_every_excuse_is_for_a_mutant_that_there_is():
    for excuses in BEYOND.values():
        assert {*excuses} <= {one.name for one in mutants()}
        assert all(excuses.values())
    assert not {*BEYOND["explorer"]} & {*BEYOND["hypothesis"]}


def first_scope_of(system: str) -> SystemSpace:
    space = space_of(system)
    return space._replace(checkup=space.checkup[:1])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch):
    """Little to sample, one scope to explore, and the mutants that the test gives."""
    monkeypatch.setitem(PROFILES, "ci", Profile(20, 10, 10, 0))
    monkeypatch.setattr(suite, "SEEDS", 1)
    monkeypatch.setattr(suite, "space_of", first_scope_of)

    def plant(*some: Mutant):
        monkeypatch.setattr(suite, "mutants", lambda: some)

    return plant


@pytest.mark.slow
def test_a_mutant_that_changes_nothing_survives_and_that_is_a_fault(quick):
    quick(Mutant("nothing", "SPY-R22"))
    one = kill(0)
    assert [answer.engine for answer in one.answers] == ["hypothesis", "explorer"]
    assert one.fault == "nothing (SPY-R22) survives"


@pytest.mark.slow
def test_one_engine_is_enough_for_a_quick_check(quick):
    right = next(one for one in mutants() if one.rule == "ALL-R03")
    nothing = Mutant("nothing", "SPY-R22")
    quick(right, nothing)
    assert [answer.engine for answer in kill(0, quick=True).answers] == ["seeds"]
    survives = kill(1, quick=True)
    assert [answer.engine for answer in survives.answers] == ["hypothesis", "explorer"]
    assert survives.fault == "nothing (SPY-R22) survives"


@pytest.mark.slow
def test_a_mutant_that_another_rule_names_is_not_found_by_sampling(quick):
    right = next(one for one in mutants() if one.rule == "SPY-R13" and not one.alone)
    quick(right, replace(right, rule="SPY-R02"))
    assert kill(0).answers[0].found
    wrong = kill(1)
    assert wrong.answers[0].how == "named SPY-R13 first"
    assert wrong.fault == f"{right.name} (SPY-R02) survives"


def test_a_mutant_with_a_target_of_its_own_is_not_asked_of_the_explorer(quick):
    quick(next(one for one in mutants() if one.rule == "ALL-R10"))
    one = kill(0)
    assert [answer.engine for answer in one.answers] == ["hypothesis"]
    assert one.fault is None


def test_what_no_sample_finds_is_explored_in_a_quick_check_too(
    quick, monkeypatch: pytest.MonkeyPatch
):
    [name] = BEYOND["hypothesis"]
    found = Answer("explorer", True, 0.0, "somehow")
    monkeypatch.setattr(suite, "by_explorer", lambda mutant, rules: found)
    quick(next(one for one in mutants() if one.name == name))
    assert kill(0, quick=True).answers == (found,)
    assert kill(0).answers[0] == Answer("hypothesis", False, 0.0, BEYOND["hypothesis"][name])


def test_an_excused_mutant_is_not_explored(quick):
    quick(next(one for one in mutants() if one.name == EXCUSED))
    assert kill(0).answers[1] == Answer("explorer", False, 0.0, BEYOND["explorer"][EXCUSED])


@pytest.mark.slow
def test_a_fault_is_in_place_only_while_it_is_hunted(quick):
    place = type("Place", (), {"value": 1})
    quick(Mutant("a value", "SPY-R22", replaced(place, "value", lambda value: value + 1)))
    kill(0)
    assert place.value == 1


@pytest.mark.slow
def test_every_rule_gets_its_witnesses_and_what_breaks_is_told(quick):
    reported = witnesses("spyre", "documented")
    lines = [one for one in reported if isinstance(one, str)]
    assert any(line.startswith("SPY-R07 breaks on documented: ") for line in lines)
    rules = [one.rule for one in reported if isinstance(one, Witnessed)]
    assert "SPY-R07" in rules
    assert len(rules) == len({*rules})


@pytest.mark.slow
@pytest.mark.parametrize(("system", "revision"), [("spyre", "2.1.2"), ("vllm", "documented")])
def test_lockstep_is_at_stake_for_a_target_that_decides_alike(system, revision):
    one = lockstep_witness(system, revision)
    assert (one.rule, one.fault) == ("ALL-R07", None)


def everything():
    """A witness and a mutant for every rule that is checked."""
    return [
        result
        for system, rule in RULES
        for result in (
            witnessed(rule.id, system, hypothesis=True),
            killed(f"against {rule.id}", rule.id, system, hypothesis=True),
        )
    ]


def test_a_rule_without_a_witness_or_a_mutant_is_vacuous():
    assert vacuous(everything()) == []
    assert len(vacuous([])) == 2 * len(RULES)
    lacking = [one for one in everything() if not isinstance(one, Killed) or one.rule != "SPY-R22"]
    assert vacuous(lacking) == ["SPY-R22 (spyre) is vacuous: it has no mutant"]
    lacking = [one for one in everything() if isinstance(one, Killed) or one.rule != "SPY-R07"]
    assert vacuous(lacking) == ["SPY-R07 (spyre) is vacuous: it has no witness"]


def test_a_mutant_that_survives_and_a_witness_that_fails_to_occur_do_not_count():
    rest = [one for one in everything() if one.rule != "SPY-R22"]
    rest += [killed(hypothesis=False), witnessed(hypothesis=False)]
    assert vacuous(rest) == [
        "SPY-R22 (spyre) is vacuous: it has no witness",
        "SPY-R22 (spyre) is vacuous: it has no mutant",
    ]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch):
    """The check with ready results: its exit code, and what it printed."""

    def run(results, parts=PARTS):
        monkeypatch.setattr(selfcheck_command, "answered", lambda tasks, jobs: iter(results))
        console = Console(file=io.StringIO(), width=200)
        code = selfcheck_command.run(console, parts, 1)
        return code, console.file.getvalue().splitlines()

    return run


AGREE = Row("SPY-R07", "sound", "limit 9", "none found", "broken", "broken")
DIFFER = replace(AGREE, explorer="holds")


def test_without_a_fault_the_exit_code_is_0(check):
    code, lines = check([*everything(), [AGREE]])
    assert code == 0
    assert not any("FAULT" in line for line in lines)
    assert lines[-1].startswith(f"no fault; {len(RULES)} rules exercised; {len(RULES)} mutants, ")
    assert "; 1 rows compared, 0 without an answer; " in lines[-1]
    remark = "hypothesis none found, explorer broken, Z3 broken (a sample need not meet it)"
    assert f"agree    SPY-R07  sound, limit 9: {remark}" in lines


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (killed("survivor", hypothesis=False), "survivor (SPY-R22) survives"),
        (witnessed(hypothesis=False), "SPY-R22 is never exercised"),
        (DIFFER, "SPY-R07, sound, limit 9: Z3 has a counterexample, explorer says that it holds"),
        (["SPY-R09 breaks on sound: [1] of 2"], "SPY-R09 breaks on sound: [1] of 2"),
    ],
)
@pytest.mark.parametrize("parts", [PARTS, PARTS[:1]], ids=["all", "one part"])
def test_any_fault_is_exit_1_and_said_again_at_the_end(check, fault, reported, parts):
    code, lines = check([*everything(), fault], parts)
    assert code == 1
    assert lines[-2] == f"FAULT {reported}"
    assert lines[-1].startswith("1 faults; ")
    assert sum(line.startswith("FAULT ") for line in lines) == 2


def test_a_vacuous_rule_is_a_fault_only_where_everything_is_asked(check):
    some = [one for one in everything() if one.rule != "SPY-R22"]
    code, lines = check(some)
    assert code == 1
    assert lines[-3:-1] == [
        "FAULT SPY-R22 (spyre) is vacuous: it has no witness",
        "FAULT SPY-R22 (spyre) is vacuous: it has no mutant",
    ]
    assert check(some, ("mutants",))[0] == 0


def test_nothing_checked_is_no_verdict(check):
    assert check([], ("agreement",))[0] == 3


def broken_off(error):
    yield witnessed(hypothesis=True)
    raise error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyboardInterrupt(), "interrupted: this is what was checked until then"),
        (BrokenProcessPool(), "a process of the check died; no verdict"),
    ],
)
def test_a_check_that_is_broken_off_has_no_verdict(check, capsys, error, line):
    code, lines = check(broken_off(error))
    assert code == 3
    assert lines == ["witness  SPY-R22  spyre sound: hypothesis 0.1 s, somehow"]
    assert capsys.readouterr().err == f"schedproof: {line}\n"


@pytest.mark.slow
def test_results_come_from_processes_and_none_is_left():
    tasks = [(len, ("abc",)), (abs, (-1,))]
    assert sorted(answered(tasks, 2)) == [1, 3]


def test_every_mutant_every_formula_and_the_witnesses_are_asked(monkeypatch):
    asked = []

    def note(tasks, jobs):
        asked.extend(tasks)
        return iter(())

    monkeypatch.setattr(selfcheck_command, "answered", note)
    selfcheck_command.run(Console(file=io.StringIO()), PARTS, 1)
    names = [(work.__name__, *args) for work, args in asked]
    assert len(names) == len({*names})
    assert {args for args in names if args[0] == "kill"} == {
        ("kill", number, False) for number in range(len(mutants()))
    }
    assert {
        ("witnesses", "spyre", "sound", False),
        ("witnesses", "spyre", "2.5.2", False),
        ("witnesses", "vllm", "documented", False),
        ("decided_table",),
    } <= {*names}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "x"], "--only: 'x'; valid: witnesses, mutants, agreement"),
        (["--only", "mutants", "--only", ""], "--only: ''; valid: witnesses, mutants, agreement"),
        (["--jobs", "0"], "--jobs: 0; valid: at least 1"),
        (["--jobs", "many"], "Invalid value for '--jobs'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run: Run, words: list[str], message: str) -> None:
    result = run("selfcheck", *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_the_command_ends_with_the_exit_code_of_the_check(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(selfcheck_command, "answered", lambda tasks, jobs: iter([DIFFER]))
    assert run("selfcheck", "--only", "agreement").code == 1
    monkeypatch.setattr(selfcheck_command, "answered", lambda tasks, jobs: iter([AGREE]))
    assert run("selfcheck", "--only", "agreement").code == 0
