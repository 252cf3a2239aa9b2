"""The engines of a gate: the built-in scenarios, and Hypothesis at each scale.

Every finding is shrunk, replayed and written down before it is reported.
"""

import shlex
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..model.errors import InputError
from ..model.faults import ConfigRefused, TargetBroken, TargetFault
from ..model.scenario import Scenario
from ..model.spyre.revision import DECIDES_AS
from ..properties.machine import Enough, Search, search
from ..properties.predicate import Broken
from ..properties.replay import Outcome, replay
from ..properties.rules import NEVER_HANGS
from ..properties.shrink import shrink
from ..spec.catalogue import load
from . import report, verdict
from .builtin import builtin_scenarios, longest
from .events import Found, Notice, Progress
from .scenario_file import write_scenario
from .state import Gate

# Each trial of a scenario that hangs costs the time limit of a step.
HANG_ATTEMPTS = 10
# What an understudy takes for so many trials, a real release takes for one.
UNDERSTUDY_ATTEMPTS = 20


def replay_corpus(gate: Gate) -> None:
    """The built-in scenarios, each to its end or to the first broken rule."""
    began = time.monotonic()
    runs = steps = refused = rejected = 0
    complete = False
    try:
        chosen = []
        for name, scenario in builtin_scenarios(gate.system).items():
            if longest(scenario) <= gate.profile.corpus_steps:
                chosen.append(scenario)
            else:
                gate.report(Notice(f"corpus: {name} left out of profile {gate.profile_name}"))
        for number, scenario in enumerate(chosen):
            gate.report(Progress("corpus", number, len(chosen), steps))
            found_at = time.monotonic()
            try:
                meant = replace(scenario, revision=gate.revision, expect=None)
                outcome = replay(gate.target, meant, gate.rules)
            except (ConfigRefused, InputError):  # an option that this revision does not have
                refused += 1
                continue
            runs, steps = runs + 1, steps + outcome.steps
            rejected += len(outcome.session.rejected)
            gate.at_stake.update(outcome.at_stake)
            if outcome.broken and not gate.deviations.covers(outcome.broken[0], meant):
                elapsed = time.monotonic() - found_at
                again = confirm(gate, meant, outcome.broken[0])
                keep(gate, "corpus", "production", meant, again, elapsed, 0.0)
        complete = True
    finally:
        gate.engines.append(
            verdict.EngineRun(
                "corpus",
                "production",
                runs,
                steps,
                time.monotonic() - began,
                refused,
                rejected,
                complete,
            )
        )


def replay_deviations(gate: Gate) -> None:
    """What the user knows to fail, each scenario to its end; another failure is a finding."""
    deviations, began = gate.deviations, time.monotonic()
    runs = steps = 0
    for number, scenario in deviations.scenarios.items():
        if number in deviations.met or deviations.entries[number].rule not in gate.ids:
            continue
        meant = replace(scenario, revision=gate.revision, expect=None)
        try:
            outcome = replay(gate.target, meant, gate.rules)
        except (ConfigRefused, InputError) as refusal:
            deviations.refused(number, str(refusal))
            continue
        runs, steps = runs + 1, steps + outcome.steps
        gate.at_stake.update(outcome.at_stake)
        deviations.replayed(number, outcome.broken)
        if outcome.broken and not deviations.covers(outcome.broken[0], meant):
            again = confirm(gate, meant, outcome.broken[0])
            keep(gate, "deviations", "given", meant, again, 0.0, 0.0)
    if runs:
        seconds = time.monotonic() - began
        gate.engines.append(verdict.EngineRun("deviations", "given", runs, steps, seconds))


def search_scale(gate: Gate, scale: str, fixed: Mapping[str, Any] | None = None) -> None:
    """Hypothesis at one scale, again and again while it finds rules that were not broken yet.

    `fixed`: the keys of the configuration that have one value only.
    """
    began = time.monotonic()
    known: frozenset[str] = frozenset()
    checked = {rule.id for rule in gate.rules if rule.checked}
    totals = Counter[str]()
    examples, seed = gate.profile.examples, gate.seed
    complete = False
    try:
        while examples > 0 and len(known) < gate.max_failures and not known >= checked:
            hunt = Search(gate.target, gate.system, gate.revision, gate.rules, scale, known)
            hunt.fixed = fixed or {}
            hunt.covers = gate.deviations.covers
            before = _progress(gate, scale, gate.profile.examples - examples, totals["steps"])
            hunt.watch = lambda h=hunt, b=before: _watch(gate, h, b)
            attempts = 0  # one who breaks the search off does not wait for shrinking
            try:
                shrink_runs = 0 if gate.understudy else gate.profile.shrink_runs
                broken = search(hunt, examples, seed, shrink_runs)
                attempts = gate.profile.shrink_attempts
                if not broken and hunt.runs < examples:
                    raise _ended_early(hunt.runs, examples)
            finally:
                _book(totals, hunt)
                gate.at_stake.update(hunt.at_stake)
                if hunt.failure is not None:
                    known |= {_found(gate, scale, hunt, attempts)}
            if NEVER_HANGS in known:
                gate.report(Notice(f"hypothesis, {scale}: a target that hangs is searched no more"))
                return
            examples -= hunt.runs_to_failure if broken else examples
            seed += 1
        complete = True
    finally:
        gate.engines.append(
            verdict.EngineRun(
                "hypothesis",
                scale,
                totals["runs"],
                totals["steps"],
                time.monotonic() - began,
                totals["refused"],
                totals["rejected"],
                complete,
            )
        )


def _ended_early(runs: int, examples: int) -> TargetFault:
    """Hypothesis leaves a search only where the same choices led to another run than before."""
    why = f"the search ended after {runs} of {examples} runs: the target is not deterministic"
    return TargetBroken("step", why, "")


def _progress(gate: Gate, scale: str, runs: int, steps: int) -> Progress:
    return Progress(f"hypothesis, {scale}", runs, gate.profile.examples, steps)


def _watch(gate: Gate, hunt: Search, before: Progress) -> None:
    """Report how far the engine is: where it was before this search, and the search itself."""
    if hunt.failure is not None and hunt.failure[1][0].rule == NEVER_HANGS:
        raise Enough
    shrinking = hunt.failure is not None
    runs = before.runs + (hunt.runs_to_failure if shrinking else hunt.runs)
    runs = min(runs, before.of)  # what Hypothesis throws away is a run on top
    steps = before.steps + hunt.steps
    gate.report(replace(before, runs=runs, steps=steps, shrinking=shrinking))


def _book(totals: Counter[str], hunt: Search) -> None:
    totals["runs"] += hunt.runs
    totals["steps"] += hunt.steps
    totals["refused"] += hunt.refused.total()
    totals["rejected"] += hunt.rejected


def _found(gate: Gate, scale: str, hunt: Search, attempts: int) -> str:
    """Shrink, replay and keep what a search found; the rule that it breaks first."""
    assert hunt.failure is not None
    smallest, (first, *_) = hunt.failure
    began = time.monotonic()

    found, target = smallest, gate.target

    def still_breaks(candidate: Scenario) -> bool:
        nonlocal smallest
        try:
            again = replay(target, candidate, gate.rules, last_step=first.step).broken
        except ConfigRefused:  # plainer, but not for this target
            return False
        if not again or again[0].rule != first.rule or gate.deviations.covers(again[0], candidate):
            return False
        smallest = candidate
        return True

    if first.rule == NEVER_HANGS:
        attempts = min(attempts, HANG_ATTEMPTS)
    try:
        if gate.understudy is not None:
            target = gate.understudy
            if still_breaks(smallest):
                shrink(smallest, still_breaks, UNDERSTUDY_ATTEMPTS * attempts)
            target = gate.target
            if smallest is not found and not still_breaks(smallest):
                smallest = found
        if smallest is found:
            shrink(smallest, still_breaks, attempts)
    finally:
        outcome = confirm(gate, smallest, first)
        seconds = hunt.shrink_seconds + time.monotonic() - began
        keep(gate, "hypothesis", scale, smallest, outcome, hunt.found_after, seconds)
    return first.rule


def confirm(gate: Gate, scenario: Scenario, first: Broken) -> Outcome:
    """The same scenario once more, which must break the same rule.

    Raises:
        TargetBroken: it does not; the scenario is written down all the same.
    """
    outcome = replay(gate.target, scenario, gate.rules, last_step=first.step)
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
    message = report.unicode_text(first.message)
    origin = {
        "engine": engine,
        "note": f"{first.rule} on {gate.target_spec}: {message}",
        "seed": gate.seed if engine == "hypothesis" else None,
    }
    named = replace(scenario, name=f"{first.rule} on {gate.target_spec}", origin=origin)
    path = write_scenario(named, gate.out, first.rule)
    known = _divergence(gate, first.rule, outcome.session.started.version)
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
    command = f"schedproof replay {shlex.quote(finding.scenario)}{gate.replay_options}"
    gate.report(Found(finding, named, outcome.session, command, gate.stderr()))


def _divergence(gate: Gate, rule: str, version: str) -> str | None:
    """What the catalogue knows of this release and rule; nothing where a release is held to what
    it does itself."""
    if DECIDES_AS.get(version, version) == gate.revision:
        return None
    by_id = {entry.id: entry for entry in load(gate.system)}
    known = by_id[rule].divergence_of(version)
    return f"{known.releases}: {known.says}" if known else None
