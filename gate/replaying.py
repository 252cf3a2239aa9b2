"""The scenarios that a gate begins with: ours, the user's, and what is known to fail."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from ..model.errors import InputError
from ..model.faults import ConfigRefused
from ..model.scenario import Scenario
from ..model.target import Target
from ..properties.replay import Outcome, replay
from ..spec.catalogue import Rule
from . import verdict
from .builtin import by_length, longest
from .deviations import Deviations
from .events import Notice, Progress
from .findings import confirm, keep
from .state import Gate


def replay_builtin(gate: Gate) -> None:
    """The built-in scenarios that are short enough for the profile, the shortest first."""
    chosen = []
    for name, scenario in by_length(gate.system).items():
        if longest(scenario) <= gate.profile.corpus_steps:
            chosen.append(scenario)
        else:
            gate.report(Notice(f"corpus: {name} left out of profile {gate.profile_name}"))
    _replay(gate, "corpus", "production", chosen)


def replay_own(gate: Gate) -> None:
    """The scenarios of the user's own corpus, all of them."""
    if gate.corpus:
        _replay(gate, "own corpus", "given", gate.corpus)


def _replay(gate: Gate, engine: str, scale: str, chosen: Sequence[Scenario]) -> None:
    """Each scenario to its end or to the first broken rule."""
    began = time.monotonic()
    runs = steps = refused = rejected = 0
    complete = False
    try:
        for number, scenario in enumerate(chosen):
            gate.report(Progress(engine, number, len(chosen), steps))
            found_at = time.monotonic()
            try:
                meant = replace(scenario, revision=gate.revision, expect=None)
                outcome = replay(gate.target, meant, gate.rules, new=gate.deviations.new)
            except (ConfigRefused, InputError):  # an option that this revision does not have
                refused += 1
                continue
            runs, steps = runs + 1, steps + outcome.steps
            rejected += len(outcome.session.rejected)
            gate.at_stake.update(outcome.at_stake)
            if outcome.broken:
                elapsed = time.monotonic() - found_at
                again = confirm(gate, meant, outcome.broken[0])
                keep(gate, engine, scale, meant, again, elapsed, 0.0)
        complete = True
    finally:
        seconds = time.monotonic() - began
        ran = (engine, scale, runs, steps, seconds, refused, rejected, complete)
        gate.engines.append(verdict.EngineRun(*ran))


def replay_deviations(gate: Gate) -> None:
    """What the user knows to fail, each scenario to its end; another failure is a finding."""
    began = time.monotonic()
    settled = settle(gate.deviations, gate.target, gate.revision, gate.rules)
    for outcome in settled:
        gate.at_stake.update(outcome.at_stake)
    for number, scenario in gate.deviations.scenarios.items():
        if gate.deviations.met.get(number, ("unused",))[0] not in ("known", "passes"):
            continue
        meant = replace(scenario, revision=gate.revision, expect=None)
        outcome = replay(gate.target, meant, gate.rules, new=gate.deviations.new)
        if outcome.broken:
            again = confirm(gate, meant, outcome.broken[0])
            keep(gate, "deviations", "given", meant, again, 0.0, 0.0)
    if settled:
        steps = sum(outcome.steps for outcome in settled)
        ran = verdict.EngineRun(
            "deviations", "given", len(settled), steps, time.monotonic() - began
        )
        gate.engines.append(ran)


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
