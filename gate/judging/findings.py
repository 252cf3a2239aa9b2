"""What a gate found: confirmed on the target, written down, and only then reported."""

import shlex

import msgspec
from msgspec.structs import replace

from ...model.faults import TargetBroken
from ...model.scenario import Scenario
from ...model.spyre.revision import DECIDES_AS
from ...properties.checking.replay import Outcome, replay
from ...properties.checking.shape import shape
from ...properties.predicates.predicate import Broken
from ...spec.catalogue import load
from ..console import output
from ..corpus.folder import FoundOn, Origin
from ..files.scenario_file import write_scenario
from ..targets.limits import replay_options
from . import verdict
from .context import GateContext
from .events import Found


def confirm(gate: GateContext, scenario: Scenario, first: Broken) -> Outcome:
    """The same scenario once more, which must break the same rule.

    Raises:
        TargetBroken: it does not; the scenario is written down all the same.
    """
    outcome = replay(
        gate.target, scenario, gate.options.rules, last_step=first.step, new=gate.deviations.new
    )
    if outcome.broken and outcome.broken[0].rule == first.rule:
        return outcome
    gate.results.unconfirmed.add(first.rule)
    path = write_scenario(scenario, gate.options.out, f"flaky-{first.rule}")
    raise TargetBroken(
        "step",
        f"{first.rule} broke at step {first.step}, but not again in the same scenario ({path}): "
        "the target is not deterministic",
        "",
    )


def keep(
    gate: GateContext,
    engine: str,
    scale: str,
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
        "engine": engine,
        "note": f"{first.rule} on {gate.options.spec.text}: {message}",
        "seed": gate.options.seed if engine == "hypothesis" else None,
        **msgspec.to_builtins(about),
    }
    named = replace(scenario, name=f"{first.rule} on {gate.options.spec.text}", origin=origin)
    path = write_scenario(named, gate.options.out, first.rule)
    known = _divergence(gate, first.rule, started.version)
    finding = verdict.Finding(
        rule=first.rule,
        engine=engine,
        scale=scale,
        scenario=str(path),
        step=first.step,
        message=message,
        requests=len(scenario.requests),
        consequences=tuple(other.rule for other in others),
        found_after=found_after,
        shrunk_in=shrunk_in,
        divergence=known,
    )
    gate.results.findings.append(finding)
    asked = gate.options
    options = asked.replay_options
    if gate.deviations.entries:  # a known failure would end the replay before this one
        options = replay_options(asked.spec, [first.rule], asked.step_limit, asked.memory_limit)
    command = f"schedproof replay {shlex.quote(finding.scenario)}{options}"
    gate.report(Found(finding, named, outcome.session.excerpt, command, gate.stderr()))


def _divergence(gate: GateContext, rule: str, version: str) -> str | None:
    """What the catalogue knows of this release and rule; nothing where a release is held to what
    it does itself."""
    if DECIDES_AS.get(version, version) == gate.options.revision:
        return None
    by_id = {entry.id: entry for entry in load(gate.options.system)}
    known = by_id[rule].divergence_of(version)
    return f"{known.releases}: {known.says}" if known else None
