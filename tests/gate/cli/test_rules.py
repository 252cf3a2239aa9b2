"""The list and one rule in full: nothing of the catalogue is left out."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from schedproof.gate.cli import rules as catalogue_rules
from schedproof.model.systems import revisions_of
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.systems import explored_systems, proofs_of, space_of
from schedproof.spec.catalogue import Rule, load

RULES = load("spyre")
CHECKED = [rule for rule in RULES if rule.checked]
UNCHECKED = [rule for rule in RULES if not rule.checked]


@pytest.fixture
def console():
    return Console(file=io.StringIO(), highlight=False, soft_wrap=True)


@pytest.fixture
def lines(console):
    return lambda: console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("system", explored_systems())
def test_the_engines_that_a_rule_names_are_those_that_look_at_it(system):
    checked = [rule for rule in load(system) if rule.checked]
    explored = {
        rule
        for scope in space_of(system).scopes
        for revision in revisions_of(system)
        if scope.belongs_to(revision)
        for rule in Exploration(ExploreOptions(revision, scope), checked).checked
    }
    # The explorer judges by predicates: a hang and a difference between two sides are none.
    explored -= {"ALL-R02", "ALL-R07"}
    for rule in checked:
        assert ("explore" in rule.engines) == (rule.id in explored), rule.id
        assert ("z3" in rule.engines) == (rule.id in {"SPY-R07", "SPY-R47", *proofs_of(system)}), (
            rule.id
        )


def test_a_planned_rule_is_listed_and_shown_as_planned(console, lines):
    planned: Rule = replace(CHECKED[0], planned="Soon.", witness="", engines=())
    catalogue_rules.show_list(console, [planned, CHECKED[1], UNCHECKED[0]])
    catalogue_rules.show_rule(console, planned)
    assert lines()[0].split()[:2] == [planned.id, "planned"]
    assert lines()[3].startswith("1 rules are checked, 1 have no predicate of their own, 1 are pl")
    assert "  planned:   Soon." in lines()


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_rule_is_shown_with_all_that_the_catalogue_has(rule, console, lines):
    catalogue_rules.show_rule(console, rule)
    shown = "\n".join(lines())
    witness = rule.witness if rule.checked else rule.unchecked
    for part in (rule.title, rule.statement, rule.source, witness, *rule.stands_in):
        assert part in shown
    for divergence in rule.divergences:
        assert f"  differs:   {divergence.releases}: {divergence.statement}" in shown
