"""Every predicate kills a mutant, and every rule's witness occurs, in the `ci` profile."""

import importlib.util
import sys
from pathlib import Path

import pytest

from schedproof.gate.profiles import PROFILES
from schedproof.model.target import ModelTarget
from schedproof.properties.machine import Search, search
from schedproof.properties.rules import LOCKSTEP, applies
from schedproof.spec.catalogue import load


def _load_mutants():
    spec = importlib.util.spec_from_file_location("mutants", Path(__file__).parent / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


mutants = _load_mutants()
RULES = load("spyre")
CHECKED = [rule.id for rule in RULES if not rule.planned]
EXAMPLES = PROFILES["ci"].examples


@pytest.mark.parametrize("mutant", mutants.SPYRE_MUTANTS, ids=lambda mutant: mutant.name)
def test_its_rule_names_the_mutant_first(mutant, monkeypatch):
    mutant.plant(monkeypatch)
    hunt = Search(mutant.target(), "spyre", mutant.revision, RULES, "small")
    # Some faults show only where five projections meet one limit: give them a second seed.
    found = search(hunt, EXAMPLES, 0, 60) or search(hunt, EXAMPLES, 1, 60)
    assert found, f"{mutant.name} survives {hunt.runs} runs"
    assert hunt.failure[1][0].rule == mutant.rule, hunt.failure


def test_every_checked_rule_has_a_mutant():
    assert {mutant.rule for mutant in mutants.SPYRE_MUTANTS} == set(CHECKED)


def test_every_witness_occurs_on_the_sound_model_at_small_scale():
    hunt = Search(ModelTarget(), "spyre", "sound", RULES, "small")
    assert not search(hunt, EXAMPLES, 0, 0)
    expected = {rule.id for rule in RULES if not rule.planned and applies(rule, "sound")}
    assert {rule for rule in expected if not hunt.at_stake[rule]} == set()


def test_every_witness_occurs_on_the_sound_model_at_published_block_size():
    hunt = Search(ModelTarget(), "spyre", "sound", RULES, "tight")
    assert not search(hunt, EXAMPLES, 0, 0)
    expected = {rule.id for rule in RULES if not rule.planned and applies(rule, "sound")}
    assert {rule for rule in expected if not hunt.at_stake[rule]} == set()


def test_lockstep_is_at_stake_for_a_target_that_is_not_the_model():
    class Release(ModelTarget):
        pass

    hunt = Search(Release(), "spyre", "2.1.2", [r for r in RULES if r.id == LOCKSTEP], "small")
    assert not search(hunt, 40, 0, 0)
    assert hunt.at_stake[LOCKSTEP] > 100
