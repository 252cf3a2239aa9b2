"""The list, one rule in full and the matrix: nothing of the catalogue is left out."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from schedproof.gate.reports import catalogue as catalogue_rules
from schedproof.model.systems import revisions_of
from schedproof.properties.mutants.systems import mutants_of
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.systems import explored_systems, proofs_of, space_of
from schedproof.spec.catalogue import Rule, load

RULES = load("spyre")
CHECKED = [rule for rule in RULES if rule.checked]
UNCHECKED = [rule for rule in RULES if not rule.checked]


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), highlight=False, soft_wrap=True)


@pytest.fixture
def lines(console: Console) -> Callable[[], list[str]]:
    return lambda: console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_each_rule_is_marked_at_the_revisions_that_it_belongs_to(
    console: Console, lines: Callable[[], list[str]]
) -> None:
    heads = ("sound", "documented", "2.1.2", "2.5.2")
    chosen = [replace(CHECKED[0], revisions=("*",)), replace(CHECKED[1], revisions=("2.5.2",))]
    catalogue_rules.show_matrix(console, chosen, "spyre")
    head, first, second, _ = lines()
    columns = [(head.index(name), head.index(name) + len(name)) for name in heads]
    assert [first[start:end].strip() for start, end in columns] == ["x", "x", "x", "x"]
    assert [second[start:end].strip() for start, end in columns] == ["-", "-", "-", "x"]


def test_a_checked_rule_has_its_engines_its_witness_and_every_mutant(
    console: Console, lines: Callable[[], list[str]]
) -> None:
    catalogue_rules.show_matrix(console, CHECKED, "spyre")
    for rule, line in zip(CHECKED, lines()[1:-1], strict=True):
        assert line.split()[0] == rule.id
        assert f"  {', '.join(rule.engines)}; {rule.witness} Kills: " in line
        kills = line.partition(" Kills: ")[2]
        mutants = [one for one in mutants_of("spyre") if one.rule == rule.id]
        assert mutants, rule.id
        for one in mutants:
            assert (f"{one.name} [{one.bug}]" if one.bug else one.name) in kills


@pytest.mark.parametrize("system", explored_systems())
def test_the_engines_that_a_rule_names_are_those_that_look_at_it(system: str) -> None:
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
        assert ("z3" in rule.engines) == (rule.id in {"SPY-R07", *proofs_of(system)}), rule.id


def test_a_rule_without_a_predicate_has_the_reason_and_what_stands_in(
    console: Console, lines: Callable[[], list[str]]
) -> None:
    catalogue_rules.show_matrix(console, UNCHECKED, "spyre")
    for rule, line in zip(UNCHECKED, lines()[1:-1], strict=True):
        stands_in = f" Stands in: {', '.join(rule.stands_in)}." if rule.stands_in else ""
        assert line.split()[:5] == [rule.id, "-", "-", "-", "-"]
        assert line.endswith(f"  {rule.because.capitalize()}. {rule.unchecked}{stands_in}")


def test_a_rule_without_a_mutant_or_a_witness_is_called_vacuous(
    console: Console, lines: Callable[[], list[str]]
) -> None:
    none_there = replace(CHECKED[0], id="XYZ-R01")
    silent = replace(CHECKED[1], witness="")
    catalogue_rules.show_matrix(console, [none_there, silent, CHECKED[2]], "spyre")
    assert "Kills: NOTHING." in lines()[1]
    vacuous = [line for line in lines() if "is vacuous" in line]
    assert [line.split()[0] for line in vacuous] == ["XYZ-R01", silent.id]
    assert "3 rules: 3 checked, 2 of them with a mutant; 0 without" in lines()[4]


def test_a_planned_rule_is_listed_and_shown_as_planned(
    console: Console, lines: Callable[[], list[str]]
) -> None:
    planned: Rule = replace(CHECKED[0], planned="Soon.", witness="", engines=())
    catalogue_rules.show_list(console, [planned, CHECKED[1], UNCHECKED[0]])
    catalogue_rules.show_rule(console, planned)
    assert lines()[0].split()[:2] == [planned.id, "planned"]
    assert lines()[3].startswith("1 rules are checked, 1 have no predicate of their own, 1 are pl")
    assert "  planned:   Soon." in lines()


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_rule_is_shown_with_all_that_the_catalogue_has(
    rule: Rule, console: Console, lines: Callable[[], list[str]]
) -> None:
    catalogue_rules.show_rule(console, rule)
    shown = "\n".join(lines())
    witness = rule.witness if rule.checked else rule.unchecked
    for part in (rule.title, rule.says, rule.source, witness, *rule.stands_in):
        assert part in shown
    for one in rule.divergences:
        assert f"  differs:   {one.releases}: {one.says}" in lines()
