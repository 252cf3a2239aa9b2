"""Times to find: medians with times that were cut short, and the gate's engines in their order."""

from importlib import import_module

import pytest

from schedproof.model.scenario import Request, Scenario
from schedproof.properties.rules.predicate import Broken
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants.faults import mutants_of
from schedproof.tests.mutants.planting import planted
from schedproof.tools.benchmarks.finding import (
    CHANCE,
    OURS,
    PLAIN,
    PUBLISHED_ONE,
    QUICK_BUGS,
    SCALES,
    SEEDS,
    Trial,
    medians,
    naming,
)

BUGS = {fault.bug: fault for system in SYSTEMS for fault in mutants_of(system) if fault.bug}


def trials(seconds, plain, found=True):
    return {
        OURS: Trial(True, seconds, 1),
        PLAIN: Trial(found, plain, 10),
        CHANCE: Trial(True, 1.0, 5),
    }


def test_medians_are_compared_with_ours():
    rows = {
        row.what.split(": ")[1]: row for row in medians([trials(1, 4), trials(2, 8), trials(3, 9)])
    }
    assert rows[OURS].value == 2
    assert (rows[PLAIN].value, rows[PLAIN].ratio, rows[PLAIN].at_least) == (8, 4.0, False)


def test_a_median_of_what_was_cut_short_is_at_least_so_much():
    cut = [trials(1, 4), trials(2, 20, False), trials(3, 20, False)]
    plain = next(row for row in medians(cut) if row.what.endswith(PLAIN))
    assert (plain.value, plain.at_least, plain.ratio_at_least) == (20, True, True)
    assert plain.note.startswith("2 not found")


def test_where_our_own_median_was_cut_short_there_is_nothing_to_compare_with():
    ours = {OURS: Trial(False, 9.0, 1), PLAIN: Trial(True, 3.0, 1)}
    rows = {row.what.split(": ")[1]: row for row in medians([ours])}
    assert (rows[OURS].value, rows[OURS].at_least) == (9.0, True)
    assert (rows[PLAIN].value, rows[PLAIN].ratio) == (3.0, None)


def test_what_was_cut_short_is_longer_than_what_was_found_however_late():
    cut = [trials(1, 30), trials(1, 20, False), trials(1, 40)]
    plain = next(row for row in medians(cut) if row.what.endswith(PLAIN))
    assert (plain.value, plain.at_least) == (40, False)


def test_only_the_rule_that_names_the_bug_counts():
    mutant = BUGS["LSS-005"]
    scenario = Scenario(
        system="llmservingsim",
        requests=(Request(id="a", arrival=0, prompt=(("a", 1),), max_tokens=1),),
    )
    others = [Broken("ALL-R03", 0, ""), Broken(mutant.rule, 0, "")]
    assert naming(mutant)(others, scenario) == others[1:]
    assert naming(mutant)(others[:1], scenario) == []


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "by"), [("SPY-032", SEEDS), ("SPY-012", PUBLISHED_ONE)])
def test_the_scenarios_that_come_along_are_first(bug, by):
    fault = BUGS[bug]
    with planted(fault) as target:
        finding = import_module("schedproof.tools.benchmarks.finding")
        trial = finding.by_gate(finding.sought_of(fault, target))
        searched = finding.by_search(finding.sought_of(fault, target))
    assert trial.found
    assert trial.runs <= 14
    assert trial.by == by
    assert searched.by in ("", *SCALES)


def test_the_quick_figure_has_a_bug_of_each_system():
    assert len({BUGS[bug].system for bug in QUICK_BUGS}) == 4
