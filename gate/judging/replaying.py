"""The scenarios that a gate begins with: ours, the user's, and what is known to fail."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.scenario import Scenario
from ...model.target import Target
from ...properties.checking.replay import Outcome, replay
from ...properties.predicates.rules import NEVER_HANGS
from ...spec.catalogue import Rule
from ..corpus.builtin_scenarios import by_length, longest, seed_corpus
from . import verdict
from .context import GateContext
from .deviations import Deviations
from .events import Notice, Progress
from .findings import confirm, keep
from .shrinking import shrink_and_keep

# What is done with a scenario that breaks a rule, and the seconds that it took; whether to go on.
Found = Callable[[Scenario, Outcome, float], bool]


def replay_seeds(gate: GateContext, scale: str, fixed: Mapping[str, Any]) -> frozenset[str]:
    """The seed corpus of a scale; the rules that it breaks, each with a small scenario.

    `fixed`: the keys of the configuration that have one value only.
    """
    chosen = [
        replace(one, config={**one.config, **fixed})
        for one in _short_enough(gate, seed_corpus(gate.options.system, scale))
    ]
    known: set[str] = set()

    def found(scenario: Scenario, outcome: Outcome, seconds: float) -> bool:
        first = outcome.broken[0]
        if first.rule not in known:
            known.add(first.rule)
            attempts = gate.options.profile.shrink_runs + gate.options.profile.shrink_attempts
            shrink_and_keep(gate, "corpus", scale, scenario, first, attempts, seconds)
        return len(known) < gate.options.max_failures and NEVER_HANGS not in known

    if chosen:
        _replay(gate, "corpus", scale, chosen, found)
    return frozenset(known)


def replay_builtin(gate: GateContext) -> None:
    """The published scenarios that are short enough for the profile, the shortest first."""
    chosen = _short_enough(gate, by_length(gate.options.system))
    _replay(gate, "corpus", "production", chosen, _as_it_is(gate, "corpus", "production"))


def replay_own(gate: GateContext) -> None:
    """The scenarios of the user's own corpus, all of them."""
    if gate.options.corpus:
        _replay(
            gate, "own corpus", "given", gate.options.corpus, _as_it_is(gate, "own corpus", "given")
        )


def _short_enough(gate: GateContext, there: Mapping[str, Scenario]) -> list[Scenario]:
    chosen = []
    for name, scenario in there.items():
        if longest(scenario) <= gate.options.profile.corpus_steps:
            chosen.append(scenario)
        else:
            gate.report(Notice(f"corpus: {name} left out of profile {gate.options.profile_name}"))
    return chosen


def _as_it_is(gate: GateContext, engine: str, scale: str) -> Found:
    """Keep a scenario that was chosen, as it is."""

    def found(scenario: Scenario, outcome: Outcome, seconds: float) -> bool:
        again = confirm(gate, scenario, outcome.broken[0])
        keep(gate, engine, scale, scenario, again, seconds, 0.0)
        return True

    return found


def _replay(
    gate: GateContext, engine: str, scale: str, chosen: Sequence[Scenario], found: Found
) -> None:
    """Each scenario to its end or to the first broken rule, while `found` says to go on."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    complete = False
    try:
        for number, scenario in enumerate(chosen):
            gate.report(Progress(f"{engine}, {scale}", number, len(chosen), totals["steps"]))
            found_at = time.monotonic()
            try:
                meant = replace(scenario, revision=gate.options.revision, expect=None)
                outcome = replay(gate.target, meant, gate.options.rules, new=gate.deviations.new)
            except (ConfigRefused, InputError):  # an option that this revision does not have
                totals["refused"] += 1
                continue
            totals.update(outcome.counts)
            gate.results.exercised.update(outcome.exercised)
            if outcome.broken and not found(meant, outcome, time.monotonic() - found_at):
                break
        complete = True
    finally:
        seconds = time.monotonic() - began
        gate.results.engines.append(verdict.EngineRun.of(engine, scale, totals, seconds, complete))


def replay_deviations(gate: GateContext) -> None:
    """What the user knows to fail, each scenario to its end; another failure is a finding."""
    began = time.monotonic()
    settled = settle(gate.deviations, gate.target, gate.options.revision, gate.options.rules)
    for outcome in settled:
        gate.results.exercised.update(outcome.exercised)
    for number, scenario in gate.deviations.scenarios.items():
        if gate.deviations.met.get(number, ("unused",))[0] not in ("known", "passes"):
            continue
        meant = replace(scenario, revision=gate.options.revision, expect=None)
        outcome = replay(gate.target, meant, gate.options.rules, new=gate.deviations.new)
        if outcome.broken:
            again = confirm(gate, meant, outcome.broken[0])
            keep(gate, "deviations", "given", meant, again, 0.0, 0.0)
    if settled:
        steps = sum(outcome.steps for outcome in settled)
        ran = verdict.EngineRun(
            "deviations", "given", len(settled), steps, time.monotonic() - began
        )
        gate.results.engines.append(ran)


def settle(
    deviations: Deviations, target: Target, revision: str, rules: Sequence[Rule]
) -> list[Outcome]:
    """Replay the scenarios that are known to fail, of these rules and not settled yet."""
    ids, outcomes = {rule.id for rule in rules}, []
    for number, scenario in deviations.scenarios.items():
        if number in deviations.met or deviations.entries[number].rule not in ids:
            continue
        try:
            meant = replace(scenario, revision=revision, expect=None)
            outcome = replay(target, meant, rules)
        except (ConfigRefused, InputError) as refusal:
            deviations.refused(number, str(refusal))
            continue
        deviations.replayed(number, outcome.broken)
        outcomes.append(outcome)
    return outcomes
