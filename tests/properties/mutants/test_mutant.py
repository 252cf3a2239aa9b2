"""Every rule has a mutant, every known bug is one, every witness occurs with blocks of 64.

That the mutants are killed, and that witnesses occur with small blocks, is `schedproof selfcheck`.
"""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from schedproof.gate.judging.profiles import PROFILES
from schedproof.model.target import ModelTarget
from schedproof.properties.mutants.spyre.mutants import REPAIRED_2_5_2
from schedproof.properties.mutants.systems import all_mutants, mutants_of, out_of_scope
from schedproof.properties.rules.registry import LOCKSTEP, applies
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

RULES = load("spyre")
NUMBERED = {
    "spyre": "SPY-",
    "vllm": "VLL-",
    "nano_vllm": "NAN-",
    "llmservingsim": "LSS-",
    "generic": "GEN-",
}
EXAMPLES = PROFILES["quick"].examples
SEEDS = 8  # rare witnesses take more than one; most are seen with the first
TESTS = Path(__file__).resolve().parents[2]
BUGS_FILE = TESTS / "golden" / "known_bugs.json"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_checked_rule_has_a_mutant_of_its_system(system):
    checked = {rule.id for rule in load(system) if rule.checked}
    assert {mutant.rule for mutant in mutants_of(system) if not mutant.bug} == checked
    assert {mutant.system for mutant in mutants_of(system)} == {system}


def test_every_invariant_of_vllm_has_three_mutants():
    for number in range(1, 6):
        assert len([one for one in mutants_of("vllm") if one.rule == f"V1-I{number}"]) >= 3


@pytest.mark.parametrize("system", SYSTEMS)
def test_names_of_mutants_are_used_once(system):
    names = [(mutant.name, mutant.bug) for mutant in mutants_of(system)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_known_bug_is_a_mutant_or_out_of_scope_for_a_reason(system):
    listed = {
        bug["id"]: bug["in_scope"]
        for bug in json.loads(BUGS_FILE.read_text(encoding="utf-8"))
        if bug["id"].startswith(NUMBERED[system])
    }
    brought_back = {mutant.bug for mutant in mutants_of(system) if mutant.bug}
    assert brought_back | out_of_scope(system).keys() == listed.keys()
    assert brought_back.isdisjoint(out_of_scope(system))
    assert all(listed[bug] for bug in brought_back)


def test_the_table_of_known_bugs_is_that_of_the_code():
    table = (TESTS / "KNOWN_BUGS.md").read_text(encoding="utf-8")
    rows = [
        line.strip("| \n").split(" | ")
        for line in table.splitlines()
        if line.startswith(tuple(f"| {letters}" for letters in NUMBERED.values()))
    ]
    bugs = [one for one in all_mutants() if one.bug]
    assert [row[:2] for row in rows] == [[mutant.bug, mutant.name] for mutant in bugs]
    assert [row[2].split()[0] for row in rows] == [mutant.rule for mutant in bugs]
    for system in SYSTEMS:
        assert all(f"- {bug}: {why}" in table for bug, why in out_of_scope(system).items())


def never_at_stake(revision, scale):
    """Checked rules whose witness does not occur, though every rule holds."""
    rules = {rule.id for rule in RULES if rule.checked and applies(rule, revision)} - {LOCKSTEP}
    for seed in range(SEEDS):
        search = Search(SearchOptions(ModelTarget(), "spyre", revision, RULES, scale))
        assert not run_search(search, EXAMPLES, seed, 0), search.failure
        rules = {rule for rule in rules if not search.exercised[rule]}
        if not rules:
            break
    return rules


@pytest.mark.slow
def test_every_witness_occurs_on_the_sound_model():
    assert never_at_stake("sound", "tight") == set()


@pytest.mark.slow
def test_every_witness_occurs_and_every_rule_holds_on_2_5_2_without_its_faults():
    with ExitStack() as stack:
        REPAIRED_2_5_2(stack)
        assert never_at_stake("2.5.2", "tight") == set()


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["2.1.2", "2.5.2"])
def test_lockstep_is_at_stake_for_a_target_that_is_not_the_model(revision):
    class Release(ModelTarget):
        pass

    lockstep = [rule for rule in RULES if rule.id == LOCKSTEP]
    search = Search(SearchOptions(Release(), "spyre", revision, lockstep, "small"))
    assert not run_search(search, 40, 0, 0)
    assert search.exercised[LOCKSTEP] > 100
