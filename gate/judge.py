"""The gate: every engine on one target, and what it means for each rule."""

from collections.abc import Mapping
from typing import Any

from ..model.faults import TargetFault
from ..model.spyre.revision import DECIDES_AS, REVISIONS
from ..model.target import ModelTarget, Reply, Target
from ..properties.rules import LOCKSTEP, applies, observable
from ..spec.catalogue import Rule
from . import verdict
from .engines import search_scale
from .events import Began, Judged, Notice
from .probing import probe
from .replaying import replay_builtin, replay_deviations, replay_own, replay_seeds
from .state import Gate


def run_gate(gate: Gate) -> verdict.Verdict:
    """Probe the target, run the engines, and put every rule's verdict together.

    Ctrl-C and a target that breaks off end the engines; what was found until then is kept.

    Raises:
        KeyboardInterrupt: Ctrl-C while the target is still asked what it takes: nothing is judged.
        TargetFault, ConfigRefused: the target does not start, or takes no configuration at all.
    """
    probed = probe(gate)
    started = probed.started
    target = verdict.TargetInfo(gate.target_spec, started.name, started.version)
    about = (gate.system, gate.revision, gate.profile_name, gate.seed)
    gate.report(Began(target, *about, tuple(probed.scales)))
    for line in probed.left_out:
        gate.report(Notice(line))
    gate.understudy = make_understudy(gate.target, started.version)
    gate.deviations.begin(started.version)
    try:
        replay_deviations(gate)
        replay_own(gate)
        known = {scale: replay_seeds(gate, scale, probed.fixed[scale]) for scale in probed.scales}
        replay_builtin(gate)
        for scale in probed.scales:
            search_scale(gate, scale, probed.fixed[scale], known[scale])
    except KeyboardInterrupt:
        gate.interrupted = True
    except TargetFault as fault:
        gate.fault = fault
    rules = tuple(judge_rules(gate, probed.observes))
    deviations = tuple(gate.deviations.judged([rule.id for rule in rules], gate.at_stake))
    broken_off = gate.interrupted or gate.fault is not None
    code = verdict.exit_code(rules, gate.chosen, broken_off, deviations)
    judged = verdict.Verdict(
        target=target,
        system=gate.system,
        revision=gate.revision,
        profile=gate.profile_name,
        seed=gate.seed,
        engines=tuple(gate.engines),
        rules=rules,
        findings=tuple(gate.findings),
        exit_code=code,
        deviations=deviations,
        interrupted=gate.interrupted,
        fault=None if gate.fault is None else str(gate.fault),
    )
    gate.report(Judged(judged))
    return judged


def make_understudy(target: Target, version: str) -> Target | None:
    """The model of the release that the target says it is, whatever it is held to."""
    revision = DECIDES_AS.get(version, version)
    if type(target) is ModelTarget or revision not in REVISIONS:
        return None

    class Understudy(ModelTarget):
        """Decides as the release."""

        def start(self, system: str, _: str, config: Mapping[str, Any]) -> Reply:
            return super().start(system, revision, config)

    return Understudy()


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
        _violated(rule, one, gate.at_stake[rule])
        for rule, one in first.items()
        if rule not in {chosen.id for chosen in gate.rules}
    ]
    for rule in gate.rules:
        if not applies(rule, gate.revision) or _is_itself(gate, rule):
            continue
        stakes = gate.at_stake[rule.id]
        if rule.planned:
            entry = verdict.RuleVerdict(rule.id, "planned", message=rule.planned)
        elif rule.unchecked:
            entry = verdict.RuleVerdict(rule.id, "not_observable", message=rule.unchecked)
        elif rule.id not in seen:
            missing = ", ".join(sorted(set(rule.needs) - observes))
            entry = verdict.RuleVerdict(
                rule.id, "not_observable", message=f"the target does not show {missing}"
            )
        elif rule.id in first:
            entry = _violated(rule.id, first[rule.id], stakes)
        elif rule.id in after:
            entry = _violated(rule.id, after[rule.id], stakes)
        elif rule.id in gate.unconfirmed:
            why = "broke once, but not again in the same scenario"
            entry = verdict.RuleVerdict(rule.id, "inconclusive", message=why, at_stake=stakes)
        elif (known := gate.deviations.of_rule(rule.id)) is not None:
            entry = verdict.RuleVerdict(rule.id, "known", message=known.reason, at_stake=stakes)
        elif stakes == 0:
            entry = verdict.RuleVerdict(rule.id, "not_exercised", message=rule.witness)
            if gate.interrupted or gate.fault is not None:
                why = "broken off before it was at stake"
                entry = verdict.RuleVerdict(rule.id, "inconclusive", message=why)
        else:
            entry = verdict.RuleVerdict(rule.id, "held", at_stake=stakes)
        judged.append(entry)
    return judged


def _violated(rule: str, finding: verdict.Finding, at_stake: int) -> verdict.RuleVerdict:
    """A rule that the finding breaks, first or in the same step as the first."""
    is_first = finding.rule == rule
    return verdict.RuleVerdict(
        rule,
        "violated",
        finding.step,
        finding.scenario,
        finding.message if is_first else "broken in the same step",
        None if is_first else finding.rule,
        at_stake,
        finding.divergence if is_first else None,
    )


def _is_itself(gate: Gate, rule: Rule) -> bool:
    """Lockstep of a model with itself says nothing."""
    return rule.id == LOCKSTEP and type(gate.target) is ModelTarget
