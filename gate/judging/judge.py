"""Run a gate: replay known scenarios, search for more, and give one verdict per rule."""

import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import __version__
from ...model.faults import ConfigRefused, TargetCrashed, TargetFault
from ...model.systems import full_config
from ...model.target import ModelTarget
from ...properties.checking.differential_target import DifferentialTarget
from ...properties.rules.registry import LOCKSTEP, applies, followed_by, observable
from ...properties.search.workloads import shapes_of
from ...spec.catalogue import Rule, load
from ..console import interrupts
from ..console.output import plural
from ..targets import checkouts, releases
from ..targets.coverage import read_probes
from ..targets.probe import Capabilities, probe
from ..targets.target_spec import TargetSpec, UnknownTargetError
from . import verdict
from .context import BreakOff, GateContext, GateOptions, GateResults, opened_gate, shrink_model_of
from .coverage import PAGE, Changes, changes_since, coverage_of
from .deviations import Deviations
from .faults import faults_of
from .initial_replays import replay_crashes, replay_deviations, replay_own
from .profiles import set_hypothesis_home
from .stages import Stage, run_stages
from .verdict import Began, Concluded, Notice, Report

# A function that is called before the targets end. It returns further fields of the verdict.
Finish = Callable[[GateContext], Mapping[str, Any]]


def no_fields(_: GateContext) -> Mapping[str, Any]:
    """Add no fields to the verdict. A gate with a single target uses this as its `finish`."""
    return {}


def run_gate(
    options: GateOptions,
    deviations: Deviations,
    report: Report,
    notice: Callable[[str], None] = lambda _: None,
    finish: Finish = no_fields,
) -> tuple[verdict.Verdict, GateResults]:
    """Open the target, judge it and close it.

    `report` receives the events of the gate. `notice` receives the messages printed while a release
    is installed. `finish` is as for `judge`.
    """
    set_hypothesis_home()
    try:
        with opened_gate(options, offline=options.offline, notice=notice) as subject:
            options = replace(options, forks=subject.forks)
            gate = GateContext(
                options, subject.target, report, subject.stderr, deviations, base=subject.base
            )
            return judge(gate, finish), gate.results
    except UnknownTargetError as error:
        base = options.base and options.rules and f"TARGET {options.base.spec.text!r}: "
        if not base or not str(error).startswith(base):
            raise
        raise UnknownTargetError(f"--base: {str(error).removeprefix('TARGET ')}") from None


def judge(gate: GateContext, finish: Finish = no_fields) -> verdict.Verdict:
    """Run the whole gate.

    1. Ask the target which scales, features and fields it supports. 2. Replay the user's known
       deviations, the starts at which the target crashed in step 1, and the user's corpus. 3.
       Replay the built-in scenarios and the seed corpus of each scale. 4. Search each scale with
       Hypothesis for runs that break a rule which the seed corpus did not break. 5. Run workloads,
       with sizes that the search does not draw, for the rules that are still unbroken. 6. Combine
       the results into one verdict per rule, and add the fields that `finish` returns.

    Ctrl-C, a hang or a violation of the protocol ends the gate early; the findings so far are kept.

    Raises:
        KeyboardInterrupt: Ctrl-C in step 1, before anything is judged.
        TargetFault, ConfigRefused: the target does not start, or accepts no configuration.
    """
    try:
        capabilities = probe(gate.probe_request)
    except ConfigRefused as refused:
        if gate.options.base is None or not gate.options.rules:  # `diff` has A and B, and no rules
            raise
        base = f"B is its base {gate.options.base.spec.text}"
        raise ConfigRefused(f"{refused}; A is the target, and {base}") from None
    except TargetCrashed as crash:
        if gate.options.base is None or not crash.message.startswith("B: "):
            raise
        message = f"{crash.message} (B is the base {gate.options.base.spec.text})"
        raise TargetCrashed(crash.op, message, crash.details) from None
    target = _announce(gate, capabilities)
    try:
        _run(gate, capabilities)
    except KeyboardInterrupt:
        gate.results.interrupted = True
    except TargetFault as fault:
        gate.results.fault = BreakOff.of(fault, gate.stderr())
    return _conclude(gate, target, capabilities.shows, finish(gate))


def _run(gate: GateContext, capabilities: Capabilities) -> None:
    """Run steps 2 to 5 of `judge`. Once the target hangs, skip the rest."""
    replay_deviations(gate)
    replay_crashes(gate, [config for config, _ in capabilities.crashes.values()])
    if not gate.results.hung:
        replay_own(gate)
    if not gate.results.hung:
        broken = run_stages(gate, _replays(capabilities))
    if not gate.results.broken_off and not gate.has_enough:
        run_stages(gate, _searches(gate, capabilities, broken))
    if not gate.results.broken_off and not gate.has_enough:
        run_stages(gate, _workloads(gate, capabilities))
    if gate.results.hung:
        gate.report(Notice("the target hangs, so no further runs are tried"))


def _announce(gate: GateContext, capabilities: Capabilities) -> verdict.TargetInfo:
    options, started = gate.options, capabilities.started
    target = verdict.TargetInfo.of(options.spec.text, started)
    about = (options.system, options.revision, options.profile_name, options.seed)
    gate.report(Began(target, *about, tuple(capabilities.scales), _base_of(gate)))
    if options.fixed:
        keys = ", ".join(f"{key} {json.dumps(value)}" for key, value in options.fixed.items())
        gate.report(Notice(f"every configuration has {keys}"))
    # A refusal by both targets is no difference, so one line is enough.
    both_refuse = gate.base is not None and not gate.base.pair.coverage.refused
    for line in capabilities.notices(in_one=both_refuse):
        gate.report(Notice(line))
    if gate.base is not None:
        for line in _shown_by_one(gate, gate.base.pair, capabilities.shows):
            gate.report(Notice(line))
        # the target's refusals have been reported above
        gate.base.pair.coverage.refused.clear()
        gate.base.began = time.monotonic()
    gate.version = started.version
    gate.shrink_model = shrink_model_of(gate.target, options.system, started.version)
    gate.deviations.begin(started.name, started.version)
    return target


def _shown_by_one(
    gate: GateContext, pair: DifferentialTarget, shows: frozenset[str]
) -> Iterator[str]:
    """Yield lines about the fields that only one of the two targets shows. If rules are judged,
    mention only fields that the base shows and the target does not."""
    options, (target, base) = gate.options, [side.started for side in pair.sides]
    if target is None or base is None:
        return
    hidden = ", ".join(sorted(base.shows - shows))
    if not options.rules:  # `diff`
        only = {"A": ", ".join(sorted(target.shows - base.shows)), "B": hidden}
        yield from (f"not compared, because only {k} shows them: {v}" for k, v in only.items() if v)
    elif hidden:
        about = (options.rules, options.revision)
        ours = observable(*about, shows, system=options.system)
        theirs = observable(*about, base.shows, system=options.system)
        lost = ", ".join(rule.id for rule in theirs if rule not in ours) or "none"
        yield (
            f"the target does not show {hidden}, which the base shows. Rules that are not judged "
            f"for this reason: {lost}"
        )


def _base_of(gate: GateContext) -> verdict.TargetInfo | None:
    if gate.base is None or gate.options.base is None:
        return None
    return verdict.TargetInfo.of(gate.options.base.spec.text, gate.base.pair.sides[1].started)


def _replays(capabilities: Capabilities) -> list[Stage]:
    seeds = [Stage("seeds", scale, capabilities.fixed[scale]) for scale in capabilities.scales]
    return [*seeds, Stage("builtin", verdict.PUBLISHED)]


def _searches(
    gate: GateContext, capabilities: Capabilities, broken: dict[Stage, frozenset[str]]
) -> list[Stage]:
    shrunk = Counter(finding.scale for finding in gate.results.findings if finding.costs)
    choices, avoid = capabilities.choices, capabilities.refused_kinds
    return [
        Stage("search", stage.scale, stage.fixed, rules, choices, shrunk[stage.scale], avoid)
        for stage, rules in broken.items()
        if stage.kind == "seeds"
    ]


def _workloads(gate: GateContext, capabilities: Capabilities) -> list[Stage]:
    within = capabilities.scales[-1]
    broken = frozenset[str]().union(*(finding.rules for finding in gate.results.findings))
    return [
        Stage("workloads", shape, capabilities.fixed[within], broken, within=within)
        for shape in shapes_of(gate.options.system)
        if gate.options.profile.workloads
    ]


def _changes(options: GateOptions) -> Changes | None:
    """Return the functions that changed since the base, or None if the code of the two targets
    cannot be compared."""
    spec, base = options.spec, options.base
    if base is None or spec.coverage is None:
        return None
    paths = [module.path for module in read_probes(spec.coverage)]
    if spec.scheduler:
        place = Path(spec.scheduler.rpartition(":")[0])
        folder = place.parent if place.suffix == ".py" else place
        return changes_since(base.spec.text, None, folder, paths)
    after, before = _code_of(spec), _code_of(base.spec)
    if after is None or before is None:
        return None
    name = before.name if base.spec.release is None else base.spec.text
    return changes_since(name, before, after, paths)


def _code_of(spec: TargetSpec) -> Path | None:
    if spec.checkout is not None:
        return checkouts.folder_of(spec.checkout, spec.folder)
    return None if spec.release is None else releases.code_of(spec.release)


def _conclude(
    gate: GateContext,
    target: verdict.TargetInfo,
    observes: frozenset[str],
    more: Mapping[str, Any],
) -> verdict.Verdict:
    interrupts.keep_results()
    options, results = gate.options, gate.results
    for number, status in results.deviation_status.items():
        gate.deviations.status.setdefault(number, status)
    catalogue = {rule.id: rule for rule in load(options.system)}
    today = datetime.date.today()
    usual = full_config(options.system, options.revision, {})
    folder = gate.deviations.folder
    faults = faults_of(results.findings, catalogue, today, options.spec.own_file, usual, folder)
    rules = tuple(judge_rules(gate, observes, faults))
    deviations = tuple(gate.deviations.judged([rule.id for rule in rules], results.exercised))
    cut = results.broken_off or bool(verdict.not_judged(results.engines))
    # A known deviation or the base may explain the refusals, but then nothing was judged.
    cut = cut or verdict.nothing_accepted(results.reach)
    code = verdict.exit_code(rules, options.named, cut, deviations)
    judged = verdict.Verdict(
        target=target,
        system=options.system,
        revision=options.revision,
        profile=options.profile_name,
        seed=options.seed,
        engines=tuple(results.engines),
        rules=rules,
        findings=tuple(results.findings),
        exit_code=code,
        deviations=deviations,
        interrupted=results.interrupted,
        fault=None if results.fault is None else results.fault.text,
        config=dict(options.fixed),
        base=_base_of(gate),
        faults=faults,
        refusals=verdict.refusals(results.refusals),
        reach=results.reach if results.reach.runs else None,
        schedproof=__version__,
        coverage=None
        if results.fault is not None
        else coverage_of(options.spec.coverage, options.out / PAGE, _changes(options)),
        **more,
    )
    gate.report(Concluded(judged))
    return judged


def judge_rules(
    gate: GateContext, observes: frozenset[str], faults: Sequence[verdict.Fault] = ()
) -> list[verdict.RuleVerdict]:
    """Return one verdict per rule, in catalogue order. Leave out the rules of other revisions."""
    options, results = gate.options, gate.results
    seen = {
        rule.id
        for rule in observable(options.rules, options.revision, observes, system=options.system)
    }
    first: dict[str, verdict.Finding] = {}
    for finding in results.findings:
        first.setdefault(finding.rule, finding)
    chosen = {rule.id for rule in options.rules}
    # Report a crash or a hang even if the user did not select its rule.
    judged = [
        violation(rule, failure, results.exercised[rule], faults)
        for rule, failure in first.items()
        if rule not in chosen
    ]
    for rule in load(options.system, options.revision):
        if rule.id in options.excluded and applies(rule, options.revision):
            why = options.excluded[rule.id]
            judged.append(verdict.RuleVerdict(rule.id, "excluded", message=why))
    for rule in options.rules:
        if applies(rule, options.revision) and not _is_itself(gate, rule):
            judged.append(_verdict_of(gate, rule, first, rule.id in seen, observes, faults))
    return judged


def _verdict_of(
    gate: GateContext,
    rule: Rule,
    first: dict[str, verdict.Finding],
    is_seen: bool,
    observes: frozenset[str],
    faults: Sequence[verdict.Fault],
) -> verdict.RuleVerdict:
    results, steps = gate.results, gate.results.exercised[rule.id]
    if rule.planned:
        return verdict.RuleVerdict(rule.id, "planned", message=rule.planned)
    if rule.unchecked:
        return verdict.RuleVerdict(rule.id, "not_observable", message=rule.unchecked)
    if not is_seen:
        followed = followed_by(gate.options.system, gate.options.revision)
        missing = ", ".join(sorted({*rule.needs, *followed} - observes))
        why = f"{verdict.NOT_SHOWN}{missing}"
        return verdict.RuleVerdict(rule.id, "not_observable", message=why)
    beside = next(
        (candidate for candidate in results.findings if rule.id in candidate.consequences), None
    )
    if (finding := first.get(rule.id, beside)) is not None:
        return violation(rule.id, finding, steps, faults)
    if rule.id in results.unconfirmed:
        why = "broken once, but not again in the same scenario"
        return verdict.RuleVerdict(rule.id, "inconclusive", message=why, exercised=steps)
    if results.compared.shared[rule.id]:
        why = f"the base breaks it as well ({plural(results.compared.shared[rule.id], 'run')})"
        return verdict.RuleVerdict(rule.id, "known", message=why, exercised=steps)
    if runs := results.compared.intended[rule.id]:
        why = f"{verdict.AFTER_INTENDED} ({plural(runs, 'run')})"
        return verdict.RuleVerdict(rule.id, "known", message=why, exercised=steps)
    if (known := gate.deviations.of_rule(rule.id)) is not None:
        why = f"{known.reason} (until {known.until})"
        return verdict.RuleVerdict(rule.id, "known", message=why, exercised=steps)
    if rule.id in results.exercised_cleanly:
        return verdict.RuleVerdict(rule.id, "held", exercised=steps)
    if steps:
        why = f"exercised only in runs cut short by {_enders(results.runs_cut_short)}"
        return verdict.RuleVerdict(rule.id, "inconclusive", message=why, exercised=steps)
    if results.broken_off:
        why = "the gate stopped before the rule was exercised"
        return verdict.RuleVerdict(rule.id, "inconclusive", message=why)
    return verdict.RuleVerdict(rule.id, "not_exercised", message=rule.witness)


def _enders(cut: Counter[str]) -> str:
    return ", ".join(f"{rule} ({runs})" for rule, runs in cut.most_common()) or "an interruption"


def violation(
    rule: str, finding: verdict.Finding, exercised: int, faults: Sequence[verdict.Fault]
) -> verdict.RuleVerdict:
    """Return the verdict on a rule that the finding breaks. If the finding belongs to a fault that
    is reported for the same rule, the verdict shows the fault's run. If the adapter is to blame,
    the verdict is inconclusive."""
    is_first = finding.rule == rule
    fault = next(
        (candidate for candidate in faults if finding.scenario in candidate.scenarios), None
    )
    by_adapter = fault is not None and fault.kind == "adapter"
    shown: verdict.Finding | verdict.Fault = finding
    if fault is not None and fault.rule == rule == finding.rule and finding.costs:
        shown = fault
    return verdict.RuleVerdict(
        rule,
        "inconclusive" if by_adapter else "violated",
        shown.step,
        shown.scenario,
        _words(finding, shown.message) if is_first else "broken in the same step",
        None if is_first else finding.rule,
        exercised,
        finding.divergence,
        None if fault is None else fault.number,
    )


def _words(finding: verdict.Finding, message: str) -> str:
    if finding.by_adapter:
        return f"ADAPTER: {message}"
    if finding.others_first:
        others = f"{finding.others_first} other{'s' * (finding.others_first > 1)} came first"
        return f"not shrunk ({others}): use --rule {finding.rule} to shrink it; {message}"
    return message


def _is_itself(gate: GateContext, rule: Rule) -> bool:
    return rule.id == LOCKSTEP and not rule.beside and type(gate.target) is ModelTarget
