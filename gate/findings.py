"""What a gate found: confirmed on the target, written down, and only then reported."""

import shlex

import msgspec
from msgspec.structs import replace

from ..model.faults import TargetBroken
from ..model.scenario import Scenario
from ..model.spyre.revision import DECIDES_AS
from ..properties.predicate import Broken
from ..properties.replay import Outcome, replay
from ..properties.shape import shape
from ..spec.catalogue import load
from . import report, verdict
from .corpus_folder import FoundOn, Origin
from .events import Found
from .scenario_file import write_scenario
from .state import Gate


def confirm(gate: Gate, scenario: Scenario, first: Broken) -> Outcome:
    """The same scenario once more, which must break the same rule.

    Raises:
        TargetBroken: it does not; the scenario is written down all the same.
    """
    outcome = replay(
        gate.target, scenario, gate.rules, last_step=first.step, new=gate.deviations.new
    )
    if outcome.broken and outcome.broken[0].rule == first.rule:
        return outcome
    gate.unconfirmed.add(first.rule)
    path = write_scenario(scenario, gate.out, f"flaky-{first.rule}")
    raise TargetBroken(
        "step",
        f"{first.rule} broke at step {first.step}, but not again in the same scenario ({path}): "
        "the target is not deterministic",
        "",
    )


def keep(
    gate: Gate,
    engine: str,
    scale: str,
    scenario: Scenario,
    outcome: Outcome,
    found_after: float,
    shrunk_in: float,
) -> None:
    """Write the scenario down, and report it."""
    first, *others = outcome.broken
    message, started = report.unicode_text(first.message), outcome.session.started
    # As a corpus has it: the folder of findings can be replayed, and added from.
    about = Origin(
        rule=first.rule,
        shape=report.unicode_text(shape(first, [one.id for one in scenario.requests])),
        found_on=FoundOn(gate.target_spec, started.name, started.version),
    )
    origin = {
        "engine": engine,
        "note": f"{first.rule} on {gate.target_spec}: {message}",
        "seed": gate.seed if engine == "hypothesis" else None,
        **msgspec.to_builtins(about),
    }
    named = replace(scenario, name=f"{first.rule} on {gate.target_spec}", origin=origin)
    path = write_scenario(named, gate.out, first.rule)
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
    gate.findings.append(finding)
    options = gate.replay_options
    if gate.deviations.entries and "--rule" not in options:
        options += f" --rule {first.rule}"  # what is known to break before it is not asked for
    command = f"schedproof replay {shlex.quote(finding.scenario)}{options}"
    gate.report(Found(finding, named, outcome.session, command, gate.stderr()))


def _divergence(gate: Gate, rule: str, version: str) -> str | None:
    """What the catalogue knows of this release and rule; nothing where a release is held to what
    it does itself."""
    if DECIDES_AS.get(version, version) == gate.revision:
        return None
    by_id = {entry.id: entry for entry in load(gate.system)}
    known = by_id[rule].divergence_of(version)
    return f"{known.releases}: {known.says}" if known else None
