"""Every entry applies, every rule has a fault, every known bug is one, every witness occurs.

That the rules find the faults, and that witnesses occur with small blocks, is `make selfcheck`.
"""

import ast
import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

from schedproof.model.systems import config_keys
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants.faults import (
    MODEL,
    Edit,
    Fault,
    StaleFaultError,
    by_hand,
    faults_of,
    mutants_of,
    out_of_scope,
    problems,
    repaired,
)
from schedproof.tests.mutants.planting import imported_anew, planted

NUMBERED = {
    "spyre": "SPY-",
    "vllm": "VLL-",
    "nano_vllm": "NAN-",
    "llmservingsim": "LSS-",
    "generic": "GEN-",
}
BLOCK_FIELDS = {"blocks", "free_blocks", "prefix_hit"}
SEEDS = 8  # rare witnesses take more than one; most are seen with the first
TESTS = Path(__file__).resolve().parents[1]
BUGS_FILE = TESTS / "golden" / "known_bugs.json"
BUGS = [fault for system in SYSTEMS for fault in mutants_of(system) if fault.bug]


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_entry_applies_and_leaves_python(system):
    assert list(problems([system])) == []
    for fault in faults_of(system):
        assert fault.edits or fault.target
        for file, source in fault.sources().items():
            assert source != (MODEL / file).read_text(encoding="utf-8"), fault.label


def shown(system: str, needs: Iterable[str]) -> bool:
    """A scheduler without blocks shows none, so no fault of it breaks a rule about them."""
    keys = config_keys(system, SYSTEMS[system].revisions[0])
    return "block_size" in keys or not BLOCK_FIELDS & {*needs}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_checked_rule_has_a_fault_of_its_system(system):
    checked = {rule.id for rule in load(system) if rule.checked and shown(system, rule.needs)}
    assert {fault.rule for fault in mutants_of(system) if not fault.bug} == checked


def test_every_invariant_of_vllm_has_three_faults():
    for number in range(1, 6):
        assert len([fault for fault in mutants_of("vllm") if fault.rule == f"V1-I{number}"]) >= 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_a_fault_does_is_said_once(system):
    names = [(fault.does, fault.bug) for fault in faults_of(system)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_a_system_has_at_least_sixty_changed_decisions(system):
    changes = {fault.edits for fault in by_hand(system)}
    assert len(changes) == len(by_hand(system)) >= 60


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_engine_that_is_excused_has_a_reason_and_leaves_the_fault_to_another(system):
    for fault in faults_of(system):
        assert {*fault.excused} < {"hypothesis", "explorer"}
        assert all(fault.excused.values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_known_bug_is_a_fault_or_out_of_scope_for_a_reason(system):
    listed = {
        bug["id"]: bug["in_scope"]
        for bug in json.loads(BUGS_FILE.read_text(encoding="utf-8"))
        if bug["id"].startswith(NUMBERED.get(system, ()))
    }
    brought_back = {fault.bug for fault in mutants_of(system) if fault.bug}
    assert brought_back | out_of_scope(system).keys() == listed.keys()
    assert brought_back.isdisjoint(out_of_scope(system))
    assert all(listed[bug] for bug in brought_back)


def test_the_table_of_known_bugs_is_that_of_the_entries():
    table = (TESTS.parent / "docs" / "findings" / "known-bugs.md").read_text(encoding="utf-8")
    rows = [
        line.strip("| \n").split(" | ")
        for line in table.splitlines()
        if line.startswith(tuple(f"| {letters}" for letters in NUMBERED.values()))
    ]
    assert [row[:2] for row in rows] == [[fault.bug, fault.does] for fault in BUGS]
    assert [row[2].split()[0] for row in rows] == [fault.rule for fault in BUGS]
    for system in SYSTEMS:
        assert all(f"- {bug}: {why}" in table for bug, why in out_of_scope(system).items())


REPORTS = TESTS.parent / "docs" / "findings" / "published-reports.md"
EXPRESSED = ("yes", "in part", "no")
WITH_REPORTS = ("vllm", "generic")  # the systems whose faults bring reports back


def reports():
    """The rows of the published reports, by concept, each without its outer bars."""
    concepts = REPORTS.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        concept.partition("\n")[0]: [
            tuple(line.strip("| ").split(" | "))
            for line in concept.splitlines()
            if line[:2] == "| "
        ][1:]
        for concept in concepts
    }


def test_each_planted_report_is_listed_with_the_rule_that_catches_it():
    listed = {row[0]: row[3] for rows in reports().values() for row in rows if "planted" in row[3]}
    faults = [fault for system in WITH_REPORTS for fault in mutants_of(system) if fault.upstream]
    planted = {fault.upstream: fault.rule for fault in faults}
    assert len(planted) == len(faults)
    assert {name: rule[: len(planted[name])] for name, rule in listed.items()} == planted


def test_the_published_reports_are_counted_as_they_are_listed():
    page = REPORTS.read_text(encoding="utf-8")
    rows = [row for rows in reports().values() for row in rows]
    assert len({row[0] for row in rows}) == len(rows)
    for concept, found in {**reports(), "all": rows}.items():
        counts = [sum(row[2] == expressed for row in found) for expressed in EXPRESSED]
        planted = sum("planted" in row[3] for row in found)
        cells = " | ".join(map(str, [concept, len(found), *counts, planted]))
        assert f"\n| {cells} |\n" in page
    for missing in {row[3] for row in rows if row[2] == "no"}:
        number = sum(row[2:] == ("no", missing) for row in rows)
        assert f"\n| {missing} | {number} |\n" in page
    rules = {rule.id for system in WITH_REPORTS for rule in load(system)}
    assert {row[3].split(",")[0].split(";")[0] for row in rows if row[2] != "no"} <= rules
    assert f"lists {len(rows)} public reports" in page


STALE = Fault("spyre", "nothing", (Edit("spyre/documented.py", "    if not length:\n", ""),))


def test_an_entry_that_the_model_has_left_behind_is_named_with_the_closest_line():
    with pytest.raises(StaleFaultError) as stale:
        STALE.sources()
    message = str(stale.value)
    assert message.startswith(
        "tests/mutants/spyre.toml, 'nothing': "
        "`before` occurs 0 times in model/spyre/documented.py, not 1"
    )
    assert message.endswith("'if not lengths:'")


def test_an_entry_whose_file_is_gone_is_named():
    gone = Fault("spyre", "nothing", (Edit("spyre/gone.py", "a", "b"),))
    with pytest.raises(StaleFaultError, match=r"'nothing': model/spyre/gone\.py does not exist"):
        gone.sources()


def test_a_fragment_has_to_occur_as_often_as_the_entry_says():
    assert Edit("", "a", "b", times=2).apply("a-a") == "b-b"
    with pytest.raises(StaleFaultError, match="`before` occurs 2 times"):
        Edit("", "a", "b").apply("a-a")


def changed_tkv():
    documented = import_module("schedproof.model.spyre.documented")
    largest: int = documented.max_tkv([5], 4)
    return largest


def test_a_fault_is_there_only_while_it_is_planted():
    fault = next(mutant for mutant in mutants_of("spyre") if mutant.rule == "SPY-R26")
    before = changed_tkv()
    with planted(fault):
        assert changed_tkv() == before - 1
    assert changed_tkv() == before


def test_beside_an_intact_model_only_the_target_has_the_fault():
    fault = next(mutant for mutant in mutants_of("spyre") if mutant.rule == "SPY-R33")
    with planted(fault) as target:
        config = import_module("schedproof.model.spyre.config").read_config({}, "sound")
        assert config.interleave is True
        assert target.start("spyre", "sound", {})["defaults"]["interleave"] is False


def never_exercised(revision):
    """Checked rules whose witness does not occur with blocks of 64, though every rule holds."""
    from schedproof.gate.judging.profiles import PROFILES
    from schedproof.model.target import ModelTarget
    from schedproof.properties.rules.registry import LOCKSTEP, applies
    from schedproof.properties.search.run import run_search
    from schedproof.properties.search.state import Search, SearchOptions

    rules = [rule for rule in load("spyre") if rule.checked and applies(rule, revision)]
    rules = [rule for rule in rules if rule.id != LOCKSTEP]
    for seed in range(SEEDS):
        search = Search(SearchOptions(ModelTarget(), "spyre", revision, rules, "tight"))
        assert not run_search(search, PROFILES["quick"].examples, seed, 0), search.failure
        rules = [rule for rule in rules if not search.exercised[rule.id]]
        if not rules:
            break
    return [rule.id for rule in rules]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("revision", ["sound", "2.5.2"])
def test_every_witness_occurs_where_every_rule_holds(revision):
    with imported_anew(repaired("spyre", revision).sources()):
        assert never_exercised(revision) == []


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["2.1.2", "2.5.2"])
def test_lockstep_is_exercised_for_a_target_that_is_not_the_model(revision):
    engines = import_module("schedproof.tests.mutants.engines")
    _, exercised, _, how = engines.lockstep_witness("spyre", revision)
    assert exercised
    assert int(how.split()[0]) > 100


def keywords_by_function():
    """The keywords with which the models call each of their functions."""
    used: dict[tuple[str, str], set[str]] = {}
    for path in MODEL.rglob("*.py"):
        folder = path.relative_to(MODEL).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                given = {keyword.arg for keyword in node.keywords if keyword.arg}
                used.setdefault((folder, name), set()).update(given)
    return used


def test_a_planted_function_takes_the_keywords_of_its_callers():
    """Otherwise the fault is a TypeError, and every rule seems to find it."""
    used, wrong = keywords_by_function(), []
    for fault in (fault for system in SYSTEMS for fault in faults_of(system)):
        for edit in fault.edits:
            name = edit.before.removeprefix("def ").rstrip("(")
            if f"def intact_{name}(" not in edit.after:
                continue
            text = edit.after.removesuffix(f"def intact_{name}(")
            [planted_function] = [
                node
                for node in ast.parse(text).body
                if isinstance(node, ast.FunctionDef) and node.name == name
            ]
            takes = planted_function.args
            names = {each.arg for each in (*takes.args, *takes.kwonlyargs)}
            missing = used.get((Path(edit.file).parts[0], name), set()) - names
            if missing and not takes.kwarg:
                wrong.append((fault.does, name, missing))
    assert wrong == []
