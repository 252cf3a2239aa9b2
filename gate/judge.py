"""The gate: every engine on one target, and what it means for each rule."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..model.faults import ConfigRefused, TargetBroken, TargetFault
from ..model.scenario import Scenario
from ..model.systems import full_config
from ..model.target import ModelTarget, Target
from ..properties.machine import Enough, Search, search
from ..properties.predicate import Broken
from ..properties.replay import Outcome, replay
from ..properties.rules import LOCKSTEP, NEVER_HANGS, applies, observable
from ..properties.session import Session
from ..properties.shrink import shrink
from ..spec.catalogue import Rule
from . import verdict
from .builtin import builtin_scenarios, longest
from .events import Found, Notice, Progress, Report
from .profiles import PROFILES, Profile
from .scenario_file import write_scenario

SCALES = ("small", "tight")
# Each trial of a scenario that hangs costs the time limit of a step.
HANG_ATTEMPTS = 10
# What a scale asks of a target before it is searched: may blocks be this small?
PROBES: dict[str, dict[str, Any]] = {
    "small": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
    "tight": {"chunk_size": 128, "max_model_len": 1024, "max_batch_tkv": 2048},
}


@dataclass
class Gate:
    """One gate: what is judged, by which rules, how hard, and what came out so far."""

    target: Target
    target_spec: str
    system: str
    revision: str
    rules: Sequence[Rule]
    chosen: bool
    profile_name: str
    seed: int
    max_failures: int
    out: Path
    report: Report
    stderr: Callable[[], str] = lambda: ""
    at_stake: Counter[str] = field(default_factory=Counter)
    engines: list[verdict.EngineRun] = field(default_factory=list)
    findings: list[verdict.Finding] = field(default_factory=list)
    unconfirmed: set[str] = field(default_factory=set)
    interrupted: bool = False
    fault: TargetFault | None = None

    @property
    def profile(self) -> Profile:
        """The budgets."""
        return PROFILES[self.profile_name]


def run_gate(gate: Gate) -> verdict.Verdict:
    """Probe the target, run the engines, and put every rule's verdict together.

    Ctrl-C and a target that breaks off end the engines; what was found until then is kept.

    Raises:
        TargetFault, ConfigRefused: the target does not start, or takes no configuration at all.
    """
    started, scales = probe(gate)
    gate.report(Notice(f"target {started.name} {started.version}, scales {', '.join(scales)}"))
    try:
        replay_corpus(gate)
        for scale in scales:
            search_scale(gate, scale)
    except KeyboardInterrupt:
        gate.interrupted = True
    except TargetFault as fault:
        gate.fault = fault
    rules = tuple(judge_rules(gate, started.observes))
    code = verdict.exit_code(rules, gate.chosen, gate.interrupted or gate.fault is not None)
    return verdict.Verdict(
        target=verdict.TargetInfo(gate.target_spec, started.name, started.version),
        system=gate.system,
        revision=gate.revision,
        profile=gate.profile_name,
        seed=gate.seed,
        engines=tuple(gate.engines),
        rules=rules,
        findings=tuple(gate.findings),
        exit_code=code,
        interrupted=gate.interrupted,
        fault=None if gate.fault is None else str(gate.fault),
    )


def probe(gate: Gate) -> tuple[Any, list[str]]:
    """Start the target once per scale: what it says of itself, and the scales that it takes."""
    started = None
    scales = []
    refusals: dict[str, ConfigRefused] = {}
    for scale in SCALES:
        config = full_config(gate.system, gate.revision, PROBES[scale])
        try:
            session = Session(gate.target, gate.system, gate.revision, config, gate.rules)
        except ConfigRefused as error:
            refusals[scale] = error
            continue
        started = session.started
        scales.append(scale)
    if started is None:
        tried = " and ".join(f"{scale} ({refusal})" for scale, refusal in refusals.items())
        raise ConfigRefused(f"the target refuses the configuration of every scale: {tried}")
    for scale, refusal in refusals.items():
        gate.report(Notice(f"scale {scale} left out, the target refuses it: {refusal}"))
    return started, scales


def replay_corpus(gate: Gate) -> None:
    """The built-in scenarios, each to its end or to the first broken rule."""
    began = time.monotonic()
    runs = steps = refused = rejected = 0
    complete = False
    try:
        for name, scenario in builtin_scenarios(gate.system).items():
            if longest(scenario) > gate.profile.corpus_steps:
                gate.report(Notice(f"corpus: {name} left out of profile {gate.profile_name}"))
                continue
            gate.report(Progress("corpus", runs, None, steps))
            found_at = time.monotonic()
            try:
                meant = replace(scenario, revision=gate.revision, expect=None)
                outcome = replay(gate.target, meant, gate.rules)
            except ConfigRefused:
                refused += 1
                continue
            runs, steps = runs + 1, steps + outcome.steps
            rejected += len(outcome.session.rejected)
            gate.at_stake.update(outcome.at_stake)
            if outcome.broken:
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


def search_scale(gate: Gate, scale: str) -> None:
    """Hypothesis at one scale, again and again while it finds rules that were not broken yet."""
    began = time.monotonic()
    known: frozenset[str] = frozenset()
    checked = {rule.id for rule in gate.rules if not rule.planned}
    totals = Counter[str]()
    examples, seed = gate.profile.examples, gate.seed
    complete = False
    try:
        while examples > 0 and len(known) < gate.max_failures and not known >= checked:
            hunt = Search(gate.target, gate.system, gate.revision, gate.rules, scale, known)
            hunt.watch = lambda h=hunt: _watch(gate, scale, h)
            attempts = 0  # one who breaks the search off does not wait for shrinking
            try:
                broken = search(hunt, examples, seed, gate.profile.shrink_runs)
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


def _watch(gate: Gate, scale: str, hunt: Search) -> None:
    if hunt.failure is not None and hunt.failure[1][0].rule == NEVER_HANGS:
        raise Enough
    gate.report(Progress(f"hypothesis, {scale}", hunt.runs, gate.profile.examples, hunt.steps))


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

    def still_breaks(candidate: Scenario) -> bool:
        nonlocal smallest
        again = replay(gate.target, candidate, gate.rules, last_step=first.step).broken
        if not again or again[0].rule != first.rule:
            return False
        smallest = candidate
        return True

    if first.rule == NEVER_HANGS:
        attempts = min(attempts, HANG_ATTEMPTS)
    try:
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
    origin = {
        "engine": engine,
        "note": f"{first.rule} on {gate.target_spec}: {first.message}",
        "seed": gate.seed if engine == "hypothesis" else None,
    }
    named = replace(scenario, name=f"{first.rule} on {gate.target_spec}", origin=origin)
    path = write_scenario(named, gate.out, first.rule)
    finding = verdict.Finding(
        rule=first.rule,
        engine=engine,
        scale=scale,
        scenario=str(path),
        step=first.step,
        message=first.message,
        requests=len(scenario.requests),
        consequences=tuple(other.rule for other in others),
        found_after=found_after,
        shrunk_in=shrunk_in,
    )
    gate.findings.append(finding)
    gate.report(Found(finding, named, outcome.session, gate.stderr()))


def judge_rules(gate: Gate, observes: frozenset[str]) -> list[verdict.RuleVerdict]:
    """One verdict a rule, in catalogue order; rules of other revisions are no part of it."""
    seen = {rule.id for rule in observable(gate.rules, gate.revision, observes)}
    first: dict[str, verdict.Finding] = {}
    after: dict[str, verdict.Finding] = {}
    for finding in gate.findings:
        first.setdefault(finding.rule, finding)
        for other in finding.consequences:
            after.setdefault(other, finding)
    judged = [
        # A crash or a hang ends a run whether or not it was asked for.
        verdict.RuleVerdict(rule, "violated", one.step, one.scenario, one.message)
        for rule, one in first.items()
        if rule not in {chosen.id for chosen in gate.rules}
    ]
    for rule in gate.rules:
        if not applies(rule, gate.revision) or _is_itself(gate, rule):
            continue
        stakes = gate.at_stake[rule.id]
        if rule.planned:
            entry = verdict.RuleVerdict(rule.id, "planned", message=rule.planned)
        elif rule.id not in seen:
            missing = ", ".join(sorted(set(rule.needs) - observes))
            entry = verdict.RuleVerdict(
                rule.id, "not_observable", message=f"the target does not show {missing}"
            )
        elif rule.id in first:
            finding = first[rule.id]
            entry = verdict.RuleVerdict(
                rule.id,
                "violated",
                finding.step,
                finding.scenario,
                finding.message,
                None,
                stakes,
            )
        elif rule.id in after:
            finding = after[rule.id]
            entry = verdict.RuleVerdict(
                rule.id,
                "violated",
                finding.step,
                finding.scenario,
                "broken in the same step",
                finding.rule,
                stakes,
            )
        elif rule.id in gate.unconfirmed:
            why = "broke once, but not again in the same scenario"
            entry = verdict.RuleVerdict(rule.id, "inconclusive", message=why, at_stake=stakes)
        elif stakes == 0:
            entry = verdict.RuleVerdict(rule.id, "not_exercised", message=rule.witness)
            if gate.interrupted or gate.fault is not None:
                why = "broken off before it was at stake"
                entry = verdict.RuleVerdict(rule.id, "inconclusive", message=why)
        else:
            entry = verdict.RuleVerdict(rule.id, "held", at_stake=stakes)
        judged.append(entry)
    return judged


def _is_itself(gate: Gate, rule: Rule) -> bool:
    """Lockstep of a model with itself says nothing."""
    return rule.id == LOCKSTEP and type(gate.target) is ModelTarget
