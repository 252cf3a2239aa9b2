"""What a gate found: made smaller, confirmed on the target, written down, and then reported."""

import shlex
import time
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.faults import ConfigRefused, TargetBroken
from ...model.scenario import Scenario
from ...model.target import model_name
from ...properties.checking.failure_signature import shape
from ...properties.checking.replay import Outcome, replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import NEVER_HANGS
from ...properties.shrinking.shrink import shrink, until
from ...spec.catalogue import load
from ...spec.systems import SYSTEMS
from ..console import output
from ..corpus.folder import FoundOn, Origin
from ..files.scenario_file import write_scenario
from . import verdict
from .context import GateContext
from .events import Found, Progress

# What a shrink model tries in the time that a real release takes for a single trial.
SHRINK_MODEL_ATTEMPTS = 20


class Place(NamedTuple):
    """Where something was found; `known`: rules that break there, behind which the run went on."""

    engine: str
    scale: str
    known: frozenset[str] = frozenset()


def confirm(gate: GateContext, place: Place, scenario: Scenario, first: Broken) -> Outcome:
    """Run a scenario that broke a rule once more: it must break the same rule.

    Raises:
        TargetBroken: it does not; the scenario is written down all the same.
    """
    rules = gate.rules_beyond(place.known)
    outcome = replay(gate.target, scenario, rules, last_step=first.step, new=gate.new)
    if outcome.broken and outcome.broken[0].rule == first.rule:
        return outcome
    gate.results.unconfirmed.add(first.rule)
    about = {"engine": place.engine, "note": "did not break again", "rule": first.rule}
    path = write_scenario(replace(scenario, origin=about), gate.options.out, f"flaky-{first.rule}")
    raise TargetBroken(
        "step",
        f"{first.rule} broke at step {first.step}, but not again in the same scenario ({path}): "
        "the target is not deterministic",
        "",
    )


def keep(
    gate: GateContext,
    place: Place,
    scenario: Scenario,
    outcome: Outcome,
    found_after: float,
    shrunk_in: float,
) -> None:
    """Write the scenario down, and report it."""
    first, *others = outcome.broken
    message, started = output.unicode_text(first.message), outcome.session.started
    # As a corpus has it: the folder of findings can be replayed, and added from.
    about = Origin(
        rule=first.rule,
        shape=output.unicode_text(shape(first, [one.id for one in scenario.requests])),
        found_on=FoundOn(gate.options.spec.text, started.name, started.version),
    )
    origin = {
        "engine": place.engine,
        "note": f"{first.rule} on {gate.options.spec.text}: {message}",
        "seed": gate.options.seed if place.engine == "hypothesis" else None,
        **msgspec.to_builtins(about),
    }
    named = replace(scenario, name=f"{first.rule} on {gate.options.spec.text}", origin=origin)
    path = write_scenario(named, gate.options.out, first.rule)
    known = _divergence(gate, first.rule, started.name, started.version)
    finding = verdict.Finding(
        rule=first.rule,
        engine=place.engine,
        scale=place.scale,
        scenario=str(path),
        step=first.step,
        message=message,
        requests=len(scenario.requests),
        consequences=tuple(other.rule for other in others),
        found_after=found_after,
        shrunk_in=shrunk_in,
        divergence=known,
        behind=_behind(gate, place, scenario, first),
    )
    gate.results.findings.append(finding)
    gate.results.hung |= first.rule == NEVER_HANGS
    asked = gate.options
    options = asked.replay_options
    if (
        gate.deviations.entries or place.known or gate.base is not None
    ):  # another failure would end the replay before it
        options = asked.replay_options_of([first.rule])
    command = f"schedproof replay {shlex.quote(finding.scenario)}{options}"
    gate.report(Found(finding, named, outcome.session.excerpt, command, gate.stderr()))


def _behind(gate: GateContext, place: Place, scenario: Scenario, first: Broken) -> tuple[str, ...]:
    """Rules that the same run breaks before this one, of which it may be a consequence."""
    if not place.known:
        return ()
    whole = replay(gate.target, scenario, gate.options.rules, last_step=first.step)
    return tuple(one.rule for one in whole.broken if one.rule in place.known)


def _divergence(gate: GateContext, rule: str, name: str, version: str) -> str | None:
    """What the catalogue knows of this release and rule; nothing where a release is held to what
    it does itself, and nothing of a scheduler that is not published."""
    system = gate.options.system
    if name not in (*SYSTEMS[system].schedulers, model_name(system)):
        return None
    if SYSTEMS[system].decides_as.get(version, version) == gate.options.revision:
        return None
    by_id = {entry.id: entry for entry in load(gate.options.system)}
    known = by_id[rule].divergence_of(version)
    return f"{known.releases}: {known.says}" if known else None


def shrink_and_keep(
    gate: GateContext,
    place: Place,
    found: Scenario,
    first: Broken,
    attempts: int,
    found_after: float,
    shrunk_in: float = 0.0,
) -> frozenset[str]:
    """Keep the smallest scenario that breaks the same rule, in at most so many trials: on the
    shrink model where there is one, and then on the target. Returns the rules that it breaks in
    its last step.

    `found_after`, `shrunk_in`: seconds until it broke, and those that it was shrunk already. Ctrl-C
    ends the shrinking; what there is by then is kept.

    Raises:
        TargetBroken: the same scenario does not break the rule again.
    """
    smallest, target, rules = found, gate.target, gate.rules_beyond(place.known)
    began, trials, steps = time.monotonic(), 0, 0

    def still_breaks(candidate: Scenario) -> bool:
        nonlocal smallest, trials, steps
        trials += 1
        name = f"making {first.rule} smaller, {place.scale}"
        gate.report(Progress(name, trials, 0, steps, shrinking=True))
        try:
            ended = replay(target, candidate, rules, last_step=first.step, new=gate.new)
        except ConfigRefused:  # plainer, but not for this target
            return False
        steps += ended.steps
        again = ended.broken
        if not again or again[0].rule != first.rule:
            return False
        smallest = candidate
        return True

    if first.rule == NEVER_HANGS:  # each trial would cost the time limit of a step
        attempts, smallest = 0, until(found, first.step)
    try:
        if gate.shrink_model is not None and attempts:
            target = gate.shrink_model
            if still_breaks(smallest):
                shrink(smallest, still_breaks, SHRINK_MODEL_ATTEMPTS * attempts)
            target = gate.target
            if smallest is not found and not still_breaks(smallest):
                smallest = found
        if smallest is found and attempts:
            shrink(smallest, still_breaks, attempts)
    finally:
        outcome = confirm(gate, place, smallest, first)
        seconds = shrunk_in + time.monotonic() - began
        keep(gate, place, smallest, outcome, found_after, seconds)
    return frozenset(one.rule for one in outcome.broken)
