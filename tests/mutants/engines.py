"""Run the engines: does a planted fault break its rule, and does a rule's witness occur?

Import this once the fault is planted (`planting`): it judges by the models that it is imported
beside. An answer is (engine, found, seconds, how).
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from schedproof.gate.corpus.folder import max_steps, seed_corpus, shortest_first
from schedproof.gate.files.scenario_file import scenario_json, scenario_of
from schedproof.gate.judging.profiles import PROFILES
from schedproof.gate.targets.scales import scales_of
from schedproof.model.errors import InputError
from schedproof.model.faults import ConfigRefused
from schedproof.model.scenario import Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.registry import LOCKSTEP, NEVER_CRASHES, applies
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.properties.search.workloads import number_of_runs, workloads
from schedproof.properties.shrinking.shrink import shrink
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.systems import explored_systems
from schedproof.spec.catalogue import Rule, load
from schedproof.tests.mutants.checkups import checkup
from schedproof.tests.mutants.faults import Fault, kept_runs
from schedproof.tests.mutants.targets import Release

WITNESS_SEEDS = 4
# With a pipeline, the head of LLMServingSim breaks LSS-R32, and so does its model. Seeds and the
# explorer, which have no such run, exercise the rule.
NOT_SAMPLED = {("llmservingsim", "head"): {"LSS-R32"}}
SHORT = 60  # steps
SECONDS = 60.0  # of processor time, for the explorer and one fault
Answer = tuple[str, bool, float, str]


def checked(system: str) -> list[Rule]:
    return [rule for rule in load(system) if rule.checked]


def rules_for(fault: Fault, *, alone: bool) -> list[Rule]:
    """The rules that judge a fault; `alone`: its own, whatever the entry says."""
    return [
        rule
        for rule in checked(fault.system)
        if rule.id == fault.rule or not (alone or fault.alone)
    ]


def own_rules(fault: Fault) -> list[Rule]:
    """The fault's own rule, or none if the revision breaks it without the fault."""
    return [rule for rule in rules_for(fault, alone=True) if rule.id not in fault.known]


def by_seeds(fault: Fault, target: Any) -> Answer:
    """Found if the fault's rule, alone, is broken by the run that is kept for it, or by a run that
    a gate begins with: one of the seed corpus, or a short built-in scenario."""
    began, builtin = time.monotonic(), shortest_first(fault.system).values()
    runs = [
        *kept_run(fault),
        *seed_corpus(fault.system, "small").values(),
        *(scenario for scenario in builtin if max_steps(scenario) <= SHORT),
    ]
    for number, scenario in enumerate(runs, start=1):
        if breaks(fault, target, scenario):
            return "seeds", True, time.monotonic() - began, f"{number} runs"
    return "seeds", False, time.monotonic() - began, f"not in {len(runs)} runs"


def breaks(fault: Fault, target: Any, scenario: Scenario) -> bool:
    """Whether a run breaks the fault's rule."""
    rules = own_rules(fault)
    with suppress(ConfigRefused, InputError):  # an option that the revision does not have
        run = replace(scenario, revision=fault.revision, expect=None)
        return bool(replay(target, run, rules).broken)
    return False


def kept_run(fault: Fault) -> list[Scenario]:
    """The run that `runs/` keeps for a fault that no seed finds."""
    runs = kept_runs(fault.system)
    return [scenario_of(runs[fault.label], fault.label)] if fault.label in runs else []


def run_to_keep(fault: Fault, target: Any, seeds: Iterable[int]) -> str | None:
    """A short run that breaks a fault's rule, as JSON; None where no engine finds any."""
    rules = own_rules(fault)
    for seed in seeds:
        search = Search(SearchOptions(target, fault.system, fault.revision, rules, "small"))
        if run_search(search, PROFILES["ci"].examples, seed, 0) and search.failure:
            return _shortened(fault, target, search.failure[0])
    for run in _checkups(fault.system, fault.revision, rules, SECONDS) if explorable(fault) else ():
        if counterexamples := run.result().counterexamples:
            return _shortened(fault, target, counterexamples[0].scenario)
    return None


def _shortened(fault: Fault, target: Any, scenario: Scenario) -> str | None:
    short = shrink(scenario, partial(breaks, fault, target), 200)
    return scenario_json(short) if breaks(fault, target, short) else None


def by_hypothesis(
    fault: Fault, target: Any, seeds: Iterable[int], profile: str, *, alone: bool = False
) -> Answer:
    """Found if the fault's rule is the first that a sampled run breaks."""
    rules, began, runs = rules_for(fault, alone=alone), time.monotonic(), 0
    for seed in seeds:
        options = SearchOptions(target, fault.system, fault.revision, rules, "small", fault.known)
        search = Search(options)
        if run_search(search, PROFILES[profile].examples, seed, 0) and search.failure:
            named = search.failure[1][0].rule
            right, seconds = named == fault.rule, time.monotonic() - began
            how = f"{runs + search.runs_to_failure} runs" if right else f"named {named} first"
            return "hypothesis", right, seconds, how
        runs += search.runs
    return "hypothesis", False, time.monotonic() - began, f"not in {runs} runs"


def by_workloads(fault: Fault, target: Any) -> Answer:
    """Found if the fault's rule is the first that a run of its workload breaks."""
    began, scale = time.monotonic(), [*scales_of(fault.system).scales.values()][-1]
    drawn = workloads(
        *(fault.system, fault.revision, fault.workload, scale, {}),
        seed=0,
        number=number_of_runs(fault.system, fault.workload, PROFILES["ci"].workloads),
    )
    rules, number = rules_for(fault, alone=False), 0
    for number, scenario in enumerate(drawn, start=1):
        broken = [found.rule for found in replay(target, scenario, rules).broken]
        new = [rule for rule in broken if rule not in fault.known]
        if new:
            how = f"{number} runs" if new[0] == fault.rule else f"named {new[0]} first"
            return "workloads", new[0] == fault.rule, time.monotonic() - began, how
    return "workloads", False, time.monotonic() - began, f"not in {number} runs"


def by_explorer(fault: Fault) -> Answer:
    """Found if a run in one of the small scopes breaks the fault's rule."""
    began, states = time.monotonic(), 0
    rules = rules_for(fault, alone=True)
    for run in _checkups(fault.system, fault.revision, rules, SECONDS):
        states += run.search.states
        if run.result().counterexamples:
            steps = sum(label[0] == "step" for label in run.search.violations[0].path)
            how = f"{steps} steps, {states:,} states, scope {run.options.scope.name}"
            return "explorer", True, time.monotonic() - began, how
    return "explorer", False, time.monotonic() - began, f"not in {states:,} states"


def _checkups(
    system: str, revision: str, rules: list[Rule], seconds: float, first_only: bool = True
) -> Iterator[Exploration]:
    """The small scopes of a revision explored, one after the other, for so long."""
    ends = time.process_time() + seconds
    for scope in checkup(system):
        if not scope.belongs_to(revision):
            continue
        run = Exploration(ExploreOptions(revision, scope, first_only=first_only), rules)
        if not run.checked:
            continue  # no prefix cache here, say, and the rules are about that
        for _ in run.search.run():
            if time.process_time() > ends:
                return
        yield run


def explorable(fault: Fault) -> bool:
    """The explorer sees models, not targets around them."""
    return not fault.target and fault.system in explored_systems()


def witnesses(system: str, revision: str, quick: bool) -> tuple[dict[str, list[Answer]], list[str]]:
    """Return by rule the engines that exercise it, and what breaks although every rule should hold.

    `quick`: replay the seed corpus first, and search only for the rules that it does not exercise.
    """
    rules = [rule for rule in checked(system) if applies(rule, revision) and rule.id != LOCKSTEP]
    by_rule: dict[str, list[Answer]] = {rule.id: [] for rule in rules}
    broken = list(_seeds(system, revision, rules, by_rule)) if quick else []
    broken += _sample(system, revision, rules, by_rule)
    if system in explored_systems() and not (quick and all(by_rule.values())):
        broken += _explore(system, revision, rules, by_rule)
    return by_rule, broken


def _seeds(
    system: str, revision: str, rules: list[Rule], by_rule: dict[str, list[Answer]]
) -> Iterator[str]:
    began = time.monotonic()
    for name, scenario in seed_corpus(system, "small").items():
        with suppress(ConfigRefused, InputError):  # an option that the revision does not have
            run = replay(ModelTarget(), replace(scenario, revision=revision, expect=None), rules)
            yield from (f"{broken.rule} breaks on {revision}: {name}" for broken in run.broken)
            for rule in run.exercised:
                if rule in by_rule and not by_rule[rule]:
                    by_rule[rule].append(("seeds", True, time.monotonic() - began, name))


def _sample(
    system: str, revision: str, rules: list[Rule], by_rule: dict[str, list[Answer]]
) -> Iterator[str]:
    began = time.monotonic()
    rules = [rule for rule in rules if rule.id not in NOT_SAMPLED.get((system, revision), ())]
    for seed in range(WITNESS_SEEDS):
        search = Search(SearchOptions(ModelTarget(), system, revision, rules, "small"))
        if run_search(search, PROFILES["ci"].examples, seed, 0) and search.failure is not None:
            yield f"{search.failure[1][0].rule} breaks on {revision}: Hypothesis"
        for rule, answers in by_rule.items():
            if search.exercised[rule] and not answers:
                how = f"{search.exercised[rule]} steps of {search.steps}"
                answers.append(("hypothesis", True, time.monotonic() - began, how))
        if all(by_rule.values()):
            return


def _explore(
    system: str, revision: str, rules: list[Rule], by_rule: dict[str, list[Answer]]
) -> Iterator[str]:
    began, missing = time.monotonic(), set(by_rule)
    for run in _checkups(system, revision, rules, 5 * SECONDS, first_only=False):
        explored = run.result()
        yield from (
            f"{counterexample.rule} breaks on {revision}: {counterexample.message}"
            for counterexample in explored.counterexamples
        )
        for rule in [rule for rule in missing if explored.exercised.get(rule)]:
            missing.remove(rule)
            how = f"scope {run.options.scope.name}"
            by_rule[rule].append(("explorer", True, time.monotonic() - began, how))
        if not missing:
            return


def lockstep_witness(system: str, revision: str) -> Answer:
    """Lockstep is exercised where a target that is not the model decides as it does. A model that
    crashes as its release does ends its run, and is no failure."""
    began = time.monotonic()
    rules, known = [rule for rule in load(system) if rule.id == LOCKSTEP], {NEVER_CRASHES}
    options = SearchOptions(Release(), system, revision, rules, "small", frozenset(known))
    search = Search(options)
    broken = run_search(search, PROFILES["quick"].examples, 0, 0)
    how = f"{search.exercised[LOCKSTEP]} steps of {search.steps}"
    exercised = bool(search.exercised[LOCKSTEP]) and not broken
    return "hypothesis", exercised, time.monotonic() - began, how
