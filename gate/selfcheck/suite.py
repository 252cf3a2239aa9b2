"""Would it have found it? The suite asked of itself: witnesses, mutants, known bugs.

A rule is vacuous unless its witness occurs and it kills a mutant. Each is asked of two engines,
Hypothesis and the explorer; what one finds and the other does not has a reason, or is a failure.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.target import ModelTarget
from ...properties.checking.replay import replay
from ...properties.mutants.mutant import Mutant, release_with
from ...properties.mutants.spyre.mutants import REPAIRED_2_5_2
from ...properties.mutants.systems import all_mutants
from ...properties.rules.registry import LOCKSTEP, applies
from ...properties.search.run import run_search
from ...properties.search.state import Search, SearchOptions
from ...solver.exploration.exploration import Exploration, ExploreOptions
from ...solver.systems import explored_systems, space_of
from ...spec.catalogue import Rule, load
from ..corpus.builtin_scenarios import seed_corpus
from ..judging.profiles import PROFILES

SEEDS = 12  # some faults show only where several choices meet: one seed in three finds them
WITNESS_SEEDS = 4
SECONDS = 60.0  # for the explorer and one mutant
NO_DRAFTS = "no scope of it has speculative decoding"
NO_ENCODER = "no scope of it has an encoder"
# Mutants that an engine does not kill, and why.
BEYOND: dict[str, dict[str, str]] = {
    "explorer": {
        "one token each": "the explorer itself chooses which request ends, which undoes the fault",
        "unfilled blocks are found": "three requests, two priorities and caching: beyond its time",
        "hits in reverse": "what a block holds is no part of a state that it explores",
        "hash of an evicted block": "four prompts that begin alike: beyond its scopes",
        "no lookahead": NO_DRAFTS,
        "every draft is right": NO_DRAFTS,
        "drafts come to nothing": NO_DRAFTS,
        "a wrong draft counts": NO_DRAFTS,
        "drafts survive": NO_DRAFTS,
        "drafts beyond the length": NO_DRAFTS,
        "wrong drafts stay": NO_DRAFTS,
        "drafts on their way count as its last tokens": NO_DRAFTS,
        "no room for the lookahead": NO_DRAFTS,
        "a victim's inputs count": NO_ENCODER,
        "a hit has its output": NO_ENCODER,
        "encoder budget of each": NO_ENCODER,
        "outputs are kept for ever": NO_ENCODER,
        "encoded again": NO_ENCODER,
        "dropped while it is read": NO_ENCODER,
        "stops at each input": NO_ENCODER,
        "nothing to encode is no admission": NO_ENCODER,
        "sent and free": "no scope of it sends blocks",
        "failures ignored": "no load of its scopes fails",
        "failures end none": "no load of its scopes fails",
        "no free waits": "which block a load fills is no part of a state",
    },
    "hypothesis": {
        "part fits": "a load of a part before a less important one that holds the rest of the pool",
    },
}


@dataclass(frozen=True)
class Answer:
    """What one engine found, after how long, and how much of what it counts that took."""

    engine: str
    found: bool
    seconds: float
    how: str


Engine = Callable[[Mutant, list[Rule]], Answer]


@dataclass(frozen=True)
class Killed:
    """A mutant, and the engines that found it."""

    system: str
    rule: str
    name: str
    bug: str
    answers: tuple[Answer, ...]

    @property
    def fault(self) -> str | None:
        """Why this is a failure of the suite, or None."""
        missing = [one for one in self.answers if not one.found]
        if not any(one.found for one in self.answers):
            return f"{self.name} ({self.rule}) survives"
        for one in missing:
            if self.name not in BEYOND[one.engine]:
                return f"{self.name} ({self.rule}) is not found by {one.engine}: {one.how}"
        return None


@dataclass(frozen=True)
class Witnessed:
    """A rule that holds, and where it was exercised."""

    system: str
    rule: str
    revision: str
    answers: tuple[Answer, ...]

    @property
    def fault(self) -> str | None:
        """Why this is a failure of the suite, or None."""
        if any(one.found for one in self.answers):
            return None
        return f"{self.rule} is never exercised"


def mutants() -> tuple[Mutant, ...]:
    """Every mutant and every known bug of every system."""
    return tuple(all_mutants())


def kill(number: int, quick: bool = False) -> Killed:
    """Ask both engines for one mutant. `quick`: its rule alone, until one finds it, after the seed
    corpus, with which a gate begins, and a few samples."""
    mutant = mutants()[number]
    rules = [one for one in load(mutant.system) if one.checked]
    if quick:
        rules = [one for one in rules if one.id == mutant.rule]
    explored = mutant.target is ModelTarget and mutant.system in explored_systems()
    exhaustive: list[Engine] = [by_explorer] if explored else []
    engines: list[Engine] = [partial(by_hypothesis, seeds=SEEDS, profile="ci"), *exhaustive]
    answers: tuple[Answer, ...] = ()
    if quick:
        shortly: Engine = partial(by_hypothesis, seeds=1, profile="quick")
        tried = (ask(mutant, rules) for ask in (by_seeds, shortly, *exhaustive))
        answers = tuple(islice((one for one in tried if one.found), 1))
    answers = answers or tuple(ask(mutant, rules) for ask in engines)
    return Killed(mutant.system, mutant.rule, mutant.name, mutant.bug, answers)


def by_seeds(mutant: Mutant, rules: list[Rule]) -> Answer:
    """Found if the mutant's rule is the first that some run of the seed corpus breaks."""
    asked = [rule for rule in _asked(mutant, rules) if rule.id not in mutant.known]
    began, seeds = time.monotonic(), seed_corpus(mutant.system, "small").values()
    with mutant.planted() as target:
        for number, scenario in enumerate(seeds, start=1):
            meant = replace(scenario, revision=mutant.revision, expect=None)
            with suppress(ConfigRefused, InputError):  # an option that the revision does not have
                broken = replay(target, meant, asked).broken
                if broken and broken[0].rule == mutant.rule:
                    return Answer("seeds", True, time.monotonic() - began, f"{number} runs")
    return Answer("seeds", False, time.monotonic() - began, f"not in {len(seeds)} runs")


def _asked(mutant: Mutant, rules: list[Rule]) -> list[Rule]:
    return [rule for rule in rules if rule.id == mutant.rule or not mutant.alone]


def by_hypothesis(mutant: Mutant, rules: list[Rule], seeds: int, profile: str) -> Answer:
    """Found if the mutant's rule is the first that a sampled run breaks."""
    if mutant.name in BEYOND["hypothesis"]:
        return Answer("hypothesis", False, 0.0, BEYOND["hypothesis"][mutant.name])
    asked = _asked(mutant, rules)
    began, runs = time.monotonic(), 0
    with mutant.planted() as target:
        for seed in range(seeds):
            search = Search(
                SearchOptions(target, mutant.system, mutant.revision, asked, "small", mutant.known)
            )
            if run_search(search, PROFILES[profile].examples, seed, 0) and search.failure:
                named = search.failure[1][0].rule
                seconds = time.monotonic() - began
                how = f"{runs + search.runs_to_failure} runs"
                if named != mutant.rule:
                    how = f"named {named} first"
                return Answer("hypothesis", named == mutant.rule, seconds, how)
            runs += search.runs
    return Answer("hypothesis", False, time.monotonic() - began, f"not in {runs} runs")


def by_explorer(mutant: Mutant, rules: list[Rule]) -> Answer:
    """Found if a run in one of the small scopes breaks the mutant's rule."""
    if mutant.name in BEYOND["explorer"]:
        return Answer("explorer", False, 0.0, BEYOND["explorer"][mutant.name])
    asked = [rule for rule in rules if rule.id == mutant.rule]
    began, states = time.monotonic(), 0
    with mutant.planted():
        for run in _checkups(mutant.system, mutant.revision, asked, began + SECONDS):
            states += run.search.states
            found = run.result().counterexamples
            if found:
                steps = sum(label[0] == "step" for label in run.search.violations[0].path)
                how = f"{steps} steps, {states:,} states, scope {run.options.scope.name}"
                return Answer("explorer", True, time.monotonic() - began, how)
    return Answer("explorer", False, time.monotonic() - began, f"not in {states:,} states")


def _checkups(
    system: str, revision: str, rules: list[Rule], ends: float, first_only: bool = True
) -> Iterator[Exploration]:
    """The small scopes of a revision explored, one after the other, until the time is over."""
    for scope in space_of(system).checkup:
        if not scope.belongs_to(revision):
            continue
        run = Exploration(ExploreOptions(revision, scope, first_only=first_only), rules)
        if not run.checked:
            continue  # no prefix cache here, say, and the rules are about that
        for _ in run.search.run():
            if time.monotonic() > ends:
                return
        yield run


def witnesses(system: str, revision: str, quick: bool = False) -> list[Witnessed | str]:
    """Where every rule of a revision that breaks none was exercised; and what broke all the same.

    For 2.5.2 the release without its faults. `quick`: the explorer is asked only for what no
    sample has shown.
    """
    rules = [
        rule
        for rule in load(system)
        if rule.checked and applies(rule, revision) and rule.id != LOCKSTEP
    ]
    with ExitStack() as stack:
        if revision == "2.5.2":
            REPAIRED_2_5_2(stack)
        reported = [_at_stake_in_samples(system, revision, rules)]
        wanted = not quick or len(reported[0][0]) < len(rules)
        if wanted and system in explored_systems():
            reported.append(_at_stake_in_scopes(system, revision, rules))
    return [line for _, lines in reported for line in lines] + [
        Witnessed(
            system,
            rule.id,
            revision,
            tuple(found[rule.id] for found, _ in reported if rule.id in found),
        )
        for rule in rules
    ]


def lockstep_witness(system: str, revision: str) -> Witnessed:
    """Lockstep compares a target with the model: it is exercised for a target that is not it."""

    began = time.monotonic()
    rules = [rule for rule in load(system) if rule.id == LOCKSTEP]
    release = release_with(lambda stack: None)
    search = Search(SearchOptions(release(), system, revision, rules, "small"))
    broken = run_search(search, PROFILES["quick"].examples, 0, 0)
    exercised = bool(search.exercised[LOCKSTEP]) and not broken
    how = f"{search.exercised[LOCKSTEP]} steps of {search.steps}"
    answer = Answer("hypothesis", exercised, time.monotonic() - began, how)
    return Witnessed(system, LOCKSTEP, revision, (answer,))


def _at_stake_in_samples(
    system: str, revision: str, rules: list[Rule]
) -> tuple[dict[str, Answer], list[str]]:
    began = time.monotonic()
    found: dict[str, Answer] = {}
    broken: list[str] = []
    for seed in range(WITNESS_SEEDS):
        search = Search(SearchOptions(ModelTarget(), system, revision, rules, "small"))
        if run_search(search, PROFILES["ci"].examples, seed, 0) and search.failure is not None:
            broken.append(f"{search.failure[1][0].rule} breaks on {revision}: Hypothesis")
        for rule in rules:
            if search.exercised[rule.id] and rule.id not in found:
                how = f"{search.exercised[rule.id]} steps of {search.steps}"
                found[rule.id] = Answer("hypothesis", True, time.monotonic() - began, how)
        if len(found) == len(rules):
            break
    return found, broken


def _at_stake_in_scopes(
    system: str, revision: str, rules: list[Rule]
) -> tuple[dict[str, Answer], list[str]]:
    began = time.monotonic()
    found: dict[str, Answer] = {}
    broken: list[str] = []
    for run in _checkups(system, revision, rules, began + 5 * SECONDS, first_only=False):
        explored = run.result()
        broken += [
            f"{one.rule} breaks on {revision}: {one.message}" for one in explored.counterexamples
        ]
        for rule, limits in explored.exercised.items():
            if limits and rule not in found:
                how = f"scope {run.options.scope.name}"
                found[rule] = Answer("explorer", True, time.monotonic() - began, how)
        if len(found) == len(rules):
            break
    return found, broken
