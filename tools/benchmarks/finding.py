"""Measure how long it takes to find a known bug: with the gate's engines, with plain Hypothesis,
and by chance.

All of them check the same rules on the same models with the same planted faults. A bug counts as
found when the rule that is listed for it is broken. Other rules do not count, because releases have
further faults that break them. The figures compare the CPU time from the first run to the step that
breaks the rule, without shrinking.

The gate's engines are those of profile `ci`: the seed corpus and the built-in scenarios, then
Hypothesis at each scale. Some of these scenarios were written for one of the bugs, so Hypothesis is
also measured by itself.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from schedproof.gate.corpus.folder import max_steps, seed_corpus, shortest_first
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.model.errors import InputError
from schedproof.model.faults import ConfigRefused
from schedproof.model.scenario import Scenario
from schedproof.model.target import ModelTarget, Target
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.predicate import Broken
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.spec.catalogue import Rule, load
from schedproof.spec.systems import SYSTEMS
from schedproof.tests.mutants.faults import Fault, mutants_of
from schedproof.tests.mutants.planting import planted

from . import plain
from .figure import FigurePlan, Row

SCALES = ("small", "tight")  # the scales of a gate on a model
SEEDS, PUBLISHED_ONE = "seed corpus", "published scenario"
QUICK_BUGS = ("SPY-008", "VLL-041", "NAN-003", "LSS-012")
SECONDS, QUICK_SECONDS = 20.0, 0.3  # CPU time per bug, for plain Hypothesis and for chance
OURS, SEARCHED = "schedproof", "schedproof, its search alone"
CHANCE = "uniform random, our sizes"
PLAIN, PUBLISHED = "plain Hypothesis, our sizes", "plain Hypothesis, published sizes"


class Sought(NamedTuple):
    """A search for a fault. `target` contains the fault, and `rules` are checked on it. `new`
    selects the failures of a step that show the fault, as in `Search`."""

    target: Target
    system: str
    revision: str
    rules: Sequence[Rule]
    new: Callable[[list[Broken], Scenario], list[Broken]] = lambda broken, _: broken


class Trial(NamedTuple):
    """The result of one engine on one fault. `seconds` is CPU time. `by` names the scale or the
    collection of scenarios that found the fault."""

    found: bool
    seconds: float
    runs: int
    steps: int = 0
    by: str = ""


def checked(system: str) -> list[Rule]:
    return [rule for rule in load(system) if rule.checked]


def naming(fault: Fault) -> Callable[[list[Broken], Scenario], list[Broken]]:
    """Return a filter that keeps only failures of the rule that is listed for the bug, so that a
    run goes on when other rules are broken."""
    return lambda broken, _: [failure for failure in broken if failure.rule == fault.rule]


def gate_scenarios(system: str) -> Iterator[tuple[str, Scenario]]:
    """Yield the scenarios that a gate of a model begins with, each with the name of its
    collection."""
    for scale in SCALES:
        for scenario in seed_corpus(system, scale).values():
            yield SEEDS, scenario
    for scenario in shortest_first(system).values():
        yield PUBLISHED_ONE, scenario


def sought_of(fault: Fault, target: Target) -> Sought:
    """Return the search for a known bug. The bug counts as found once the rule that is listed for
    it is broken."""
    rules = checked(fault.system)
    return Sought(target, fault.system, fault.revision, rules, naming(fault))


def by_gate(sought: Sought, profile: Profile = PROFILES["ci"]) -> Trial:
    """Run the engines of a gate one after the other until one of them finds the fault."""
    runs, steps = 0, 0
    began = time.process_time()
    for by, scenario in gate_scenarios(sought.system):
        if max_steps(scenario) > profile.corpus_steps:
            continue
        try:
            meant = replace(scenario, revision=sought.revision, expect=None)
            outcome = replay(sought.target, meant, sought.rules, new=sought.new)
        except (ConfigRefused, InputError):  # the scenario uses an option that this revision lacks
            continue
        runs, steps = runs + 1, steps + outcome.steps
        if outcome.broken:
            return Trial(True, time.process_time() - began, runs, steps, by)
    searched = by_search(sought, profile)
    return searched._replace(
        seconds=time.process_time() - began,
        runs=runs + searched.runs,
        steps=steps + searched.steps,
    )


def by_search(sought: Sought, profile: Profile = PROFILES["ci"]) -> Trial:
    """Run only Hypothesis, at the scales of a gate, without the built-in scenarios."""
    runs, steps = 0, 0
    began = time.process_time()
    for scale in SCALES:
        options = SearchOptions(
            *(sought.target, sought.system, sought.revision, sought.rules, scale),
            max_steps=profile.steps,
        )
        search = Search(options, Hooks(new=lambda: sought.new))
        found = run_search(search, profile.examples, 0, 0)
        runs += search.runs_to_failure if found else search.runs
        steps += search.steps_to_failure if found else search.steps
        if found:
            return Trial(True, time.process_time() - began, runs, steps, scale)
    return Trial(False, time.process_time() - began, runs, steps)


def by_plain(sought: Sought, engine: Callable[..., None], seconds: float) -> Trial:
    """Run plain Hypothesis, or chance, for this many CPU seconds."""
    search = plain.Plain(sought.target, sought.system, sought.revision, sought.rules, sought.new)
    plain.values_of_keys(sought.system, sought.revision)  # cached, and not timed
    began = time.process_time()
    engine(
        search,
        sought.system,
        sought.revision,
        lambda: time.process_time() - began > seconds,
    )
    return Trial(search.found, time.process_time() - began, search.runs, search.steps)


def trials(fault: Fault, seconds: float) -> dict[str, Trial]:
    """Search for one bug with all engines in turn."""
    with planted(fault) as target:
        anew = import_module(__name__)  # this module, imported a second time with the faulty models
        sought = anew.sought_of(fault, target)
        found = {
            OURS: anew.by_gate(sought),
            SEARCHED: anew.by_search(sought),
            PUBLISHED: anew.by_plain(sought, anew.plain.at_published_sizes, seconds),
            PLAIN: anew.by_plain(sought, anew.plain.by_hypothesis, seconds),
            CHANCE: anew.by_plain(sought, anew.plain.by_chance, seconds),
        }
    return {engine: Trial(*trial) for engine, trial in found.items()}


def rows(quick: bool) -> Iterator[Row]:
    """Yield a row for each bug and engine, then the medians over all bugs."""
    bugs = [fault for system in SYSTEMS for fault in mutants_of(system) if fault.bug]
    if quick:
        bugs = [known for known in bugs if known.bug in QUICK_BUGS]
    warm_up(dict.fromkeys((known.system, known.revision) for known in bugs))
    found: list[dict[str, Trial]] = []
    for fault in bugs:
        found.append(trials(fault, QUICK_SECONDS if quick else SECONDS))
        ours = found[-1][OURS]
        for engine, trial in found[-1].items():
            yield Row(
                what=f"{fault.label}: {engine}",
                value=trial.seconds,
                unit="s CPU",
                at_least=not trial.found,
                ratio=trial.seconds / ours.seconds if ours.found else None,
                ratio_at_least=not trial.found,
                to=OURS,
                note=f"{trial.runs:,} runs{f', {trial.by}' * bool(trial.by)}",
                is_detail=True,
            )
    yield from medians(found)


def medians(found: Sequence[dict[str, Trial]]) -> Iterator[Row]:
    """Yield the medians over the bugs. The time of a search that was cut short is a lower bound.
    A median that depends on a lower bound is itself a lower bound."""
    middle = {}
    for engine in found[0]:
        ordered = sorted((not of_bug[engine].found, of_bug[engine].seconds) for of_bug in found)
        around = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
        middle[engine] = (
            median(seconds for _, seconds in around),
            any(cut for cut, _ in around),
        )
    for engine, (seconds, cut) in middle.items():
        hunted = [of_bug[engine] for of_bug in found]
        missed = sum(not trial.found for trial in hunted)
        by = Counter(trial.by for trial in hunted)
        known = "".join(
            f", {by[source]} by a {source}" for source in (SEEDS, PUBLISHED_ONE) if by[source]
        )
        yield Row(
            what=f"median of {len(found)} bugs: {engine}",
            value=seconds,
            unit="s CPU",
            at_least=cut,
            ratio=None if middle[OURS][1] else seconds / middle[OURS][0],
            ratio_at_least=cut,
            to=OURS,
            note=f"{missed} not found, median {median(trial.runs for trial in hunted):,.0f} runs"
            + known,
        )


def warm_up(revisions: Iterable[tuple[str, str]]) -> None:
    """Build what Hypothesis builds once per process, so that the first fault is not charged for
    it."""
    for system, revision in revisions:
        warm = Search(SearchOptions(ModelTarget(), system, revision, checked(system), "small"))
        run_search(warm, 3, 0, 0)


PLAN = FigurePlan(
    "finding",
    "Time to find the known bugs",
    f"{OURS}: the gate's engines, profile ci; alone: without the built-in scenarios; plain: lists "
    "of uniformly drawn integers as requests, the same predicates, in the published configuration "
    "or in small ones with our values; '>': not found by then",
    rows,
)
