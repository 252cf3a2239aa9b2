"""Shrink a finding, confirm it on the target, write it to a file and report it."""

import shlex
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...model.faults import ConfigRefused, TargetBroken
from ...model.scenario import Scenario
from ...model.systems import full_config
from ...model.target import ModelTarget, model_name
from ...properties.checking.failure_signature import own_frames, shape
from ...properties.checking.replay import Outcome, replay
from ...properties.explanations.cause import Cause
from ...properties.explanations.evidence import Evidence
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import LOCKSTEP, NEVER_CRASHES, NEVER_HANGS
from ...properties.search.state import kept_going
from ...properties.shrinking.shrink import features_in, needed_features, shrink, until
from ...spec.catalogue import load
from ...spec.systems import OWN_RULES, SYSTEMS
from ..console import output
from ..corpus.folder import FoundOn, Origin
from ..files.scenario_file import write_failure, write_scenario
from ..targets.coverage import Entered, Interval, combine
from ..targets.target_spec import is_adapters_fault
from . import verdict
from .context import GateContext
from .coverage import only_here
from .deviations import New
from .verdict import Found, Progress

# A shrink model runs this many scenarios in the time in which a release runs one.
SHRINK_MODEL_ATTEMPTS = 20
NEAREST = 12  # the largest number of passing runs to compare a counterexample with


class Place(NamedTuple):
    """The engine and the scale of a finding. `known` lists rules that a run may break without
    stopping."""

    engine: str
    scale: str
    known: frozenset[str] = frozenset()


def confirm(
    gate: GateContext, place: Place, scenario: Scenario, first: Broken
) -> tuple[Outcome, Cause | None]:
    """Replay a scenario that broke a rule, and return the outcome and its cause.

    Raise TargetBroken if the replay does not break the same rule.
    """
    rules, evidence = gate.rules_beyond(place.known), Evidence()
    outcome = replay(
        *(gate.target, scenario, rules, evidence.watch),
        last_step=first.step,
        new=gate.in_run(),
        begun=evidence.begun,
    )
    if outcome.broken and outcome.broken[0].rule == first.rule:
        return outcome, evidence.cause(scenario, outcome.broken)
    gate.results.unconfirmed.add(first.rule)
    about = {"engine": place.engine, "note": "was not broken again", "rule": first.rule}
    path = write_scenario(replace(scenario, origin=about), gate.options.out, f"flaky-{first.rule}")
    raise TargetBroken(
        "step",
        f"{first.rule} was broken in step {first.step}, but not again in the same scenario "
        f"({path}): {f'{first.rule} or ' * (first.rule in OWN_RULES)}"
        "the target is not deterministic",
        "",
    )


def keep(
    gate: GateContext,
    place: Place,
    scenario: Scenario,
    confirmed: tuple[Outcome, Cause | None],
    found_after: float,
    shrunk_in: float,
    needs: tuple[str, ...] | None = None,
    others_first: int = 0,
    nearest: Sequence[Scenario] = (),
) -> verdict.Finding:
    """Write a finding's scenario to a file and report the finding. `nearest` lists similar
    scenarios that break no rule."""
    outcome, cause = confirmed
    first, *others = outcome.broken
    behind = _broken_earlier(gate, place, scenario, first)
    message, started = output.unicode_text(first.message), outcome.session.started
    # Written like a corpus entry, so that the folder of findings can serve as a corpus.
    about = Origin(
        rule=first.rule,
        shape=output.unicode_text(shape(first, scenario.request_ids)),
        found_on=FoundOn(gate.options.spec.text, started.name, started.version),
    )
    origin = {
        "engine": place.engine,
        "note": f"{first.rule} on {gate.options.spec.text}: {message}",
        "seed": gate.options.seed if place.engine == "hypothesis" else None,
        **msgspec.to_builtins(about),
    }
    named = replace(scenario, name=f"{first.rule} on {gate.options.spec.text}", origin=origin)
    path = write_failure(named, gate.options.out, first._replace(message=message))
    options = gate.options.replay_options
    several = gate.deviations.entries or place.known or gate.base is not None
    if several:  # otherwise another failure could end the replay first
        options = gate.options.replay_options_of([first.rule])
    lines, passed, own = _lines_entered(gate, place, scenario, first, nearest)
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
        # A failure that the base does not share is not a known divergence of the release.
        divergence=None
        if gate.base is not None
        else _divergence(gate, first.rule, started.name, started.version, scenario.config),
        behind=behind,
        replay=f"schedproof replay {shlex.quote(str(path))}{options}",
        needs=needs,
        features=features_in(scenario) if needs is None else (),
        differs=_first_difference(gate, scenario, first),
        others_first=others_first,
        decided=_raising_line(first.rule, outcome.session.details),
        place=output.unicode_text(first.place),
        only_here=lines,
        nearest=passed,
        own=own,
        by_adapter=is_adapters_fault(first, behind, gate.options.spec),
        start_up=started.start_up,
    )
    gate.results.findings.append(finding)
    gate.results.hung |= first.rule == NEVER_HANGS
    excerpt = outcome.session.excerpt
    gate.report(Found(finding, named, excerpt, finding.replay, gate.stderr(), cause))
    return finding


def _first_difference(gate: GateContext, scenario: Scenario, first: Broken) -> str | None:
    """Return the fields that differ in the first step that deviates from the base or, without a
    base, from the model. Look no further than the failing step."""
    if gate.base is not None:  # says more than a difference from the model
        difference = gate.base.pair.difference
        return None if difference is None else difference.shape
    lockstep = [rule for rule in load(gate.options.system) if rule.id == LOCKSTEP]
    if not lockstep or type(gate.target) is ModelTarget or first.rule == NEVER_HANGS:
        return None
    beside = replace(lockstep[0], revisions=("*",), needs=(), beside=gate.options.revision)
    broken = replay(gate.target, scenario, [beside], last_step=first.step).broken
    return (
        shape(broken[0], ()).partition(": ")[2] if broken and broken[0].rule == LOCKSTEP else None
    )


def _raising_line(rule: str, details: str) -> str | None:
    """Return, as FILE:LINE, the last frame outside the standard library in the traceback of an
    exception or a hang."""
    if rule not in (NEVER_CRASHES, NEVER_HANGS):
        return None
    frames = [f"{frame.file}:{frame.line}" for frame in own_frames(details)]
    inner_first = "most recent call first" in details or rule == NEVER_HANGS
    return frames[0 if inner_first else -1] if frames else None


def _lines_entered(
    gate: GateContext,
    place: Place,
    scenario: Scenario,
    first: Broken,
    nearest: Sequence[Scenario],
) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    """Return three things: the lines that this scenario enters up to its failing step and that none
    of the nearest passing scenarios enters; the number of these passing scenarios; and, with a
    base, all lines of the user's class that the failing run executes."""
    folder, own_file = gate.options.spec.coverage, gate.options.spec.own_file
    is_compared = gate.base is not None and own_file
    if folder is None or not (nearest or is_compared):
        return (), 0, ()
    rules, passed = gate.rules_beyond(place.known), list[Entered]()
    count = 0
    with Interval(folder) as interval:
        for candidate in nearest:
            try:  # the target may refuse what the shrink model accepted
                other = replay(
                    gate.target, candidate, rules, last_step=first.step, new=gate.in_run()
                )
            except ConfigRefused:
                continue
            entered = interval.take()
            if not other.broken and not other.session.rejected:
                passed, count = combine(passed, entered), count + 1
        interval.take()
        replay(gate.target, scenario, rules, last_step=first.step, new=gate.in_run())
        entered = interval.take()
    here = only_here(entered, passed) if count else ()
    whole = only_here(entered, ()) if is_compared else ()
    return here, count, tuple(lines for lines in whole if lines.startswith(f"{own_file}:"))


def _broken_earlier(
    gate: GateContext, place: Place, scenario: Scenario, first: Broken
) -> tuple[str, ...]:
    """Return the rules that the run breaks before it breaks `first`. Any of them may be the cause.

    The rule that compares the target with the model is left out, because it would have ended the
    run at the first difference.
    """
    if not place.known and not gate.deviations.covered:
        return ()
    others = [rule for rule in gate.options.rules if rule.id not in (LOCKSTEP, first.rule)]
    steps: list[list[Broken]] = []
    replay(gate.target, scenario, others, last_step=first.step, new=collect_into(steps))
    rules = dict.fromkeys(failure.rule for broken in steps for failure in broken)
    return tuple(rule for rule in rules if rule != first.rule)  # even if its rule is not judged


def collect_into(steps: list[list[Broken]]) -> New:
    """Return a filter that appends each step's failures to `steps`, and never stops the run."""

    def new(broken: Sequence[Broken], _: Scenario) -> list[Broken]:
        if broken:
            steps.append([*broken])
        return []

    return new


def _divergence(
    gate: GateContext, rule: str, name: str, version: str, config: Mapping[str, Any]
) -> str | None:
    """Return this release's known divergence from the rule, in the words of the catalogue, or None.

    Skip divergences that cannot occur with this configuration. A release that is judged by its own
    revision has no divergences. A class that replaces a release's scheduler inherits the
    divergences of the release whose version it reports.
    """
    system = gate.options.system
    published = (*SYSTEMS[system].schedulers, model_name(system))
    base, _, release = version.rpartition(" ")
    if base not in published:
        base, release = name, version
    if base not in published:
        return None
    if SYSTEMS[system].decides_as.get(release, release) == gate.options.revision:
        return None
    by_id = {entry.id: entry for entry in load(system, gate.options.revision)}
    keys, defaults = (full_config(system, gate.options.revision, c) for c in (config, {}))
    is_on = {k: value is True or (value and value != defaults.get(k)) for k, value in keys.items()}
    return (
        "; or ".join(
            f"{known.releases}: {known.statement}" + f" ({known.change})" * bool(known.change)
            for known in by_id[rule].divergences_of(release)
            if all(is_on.get(key) for key in known.only_with)
        )
        or None
    )


def _until(gate: GateContext, place: Place, scenario: Scenario, step: int) -> Scenario:
    """Return the scenario up to this step, without later events. A replay takes the step even if
    all requests have ended before it."""
    cut = until(scenario, step)
    longer = kept_going(cut, step)
    if cut == scenario or longer == cut:
        return cut
    rules = gate.rules_beyond(place.known)
    session = replay(gate.target, cut, rules, last_step=step - 1, new=gate.in_run()).session
    return longer if session.is_over or session.stands_still else cut


def shrink_and_keep(
    gate: GateContext,
    place: Place,
    found: Scenario,
    first: Broken,
    attempts: int,
    found_after: float,
    shrunk_in: float = 0.0,
    others_first: int = 0,
) -> verdict.Finding | None:
    """Shrink a scenario, and keep the smallest one that breaks the same rule. Return None if the
    base has the same failure.

    Ctrl-C ends the shrinking; the smallest scenario so far is kept. `attempts` limits the number of
    scenarios to try, first on the shrink model, if there is one, and then on the target.
    `found_after` and `shrunk_in` are in seconds. If `others_first` is not 0, this many other
    findings have used up --max-failures, so this finding is kept without shrinking. Raise
    TargetBroken if the scenario does not break the rule again.
    """
    smallest, target, rules = found, gate.target, gate.rules_beyond(place.known)
    passing: deque[Scenario] = deque(maxlen=NEAREST)
    nearest: list[Scenario] = []
    needs: tuple[str, ...] | None = None
    began, trials, steps = time.monotonic(), 0, 0

    def breaks(candidate: Scenario) -> bool | None:
        """Return whether the candidate breaks the same rule, or None if the target refuses it or
        one of its requests."""
        nonlocal trials, steps
        trials += 1
        name = f"shrinking {first.rule}, {place.scale}"
        gate.report(Progress(name, trials, 0, steps, shrinking=True))
        if any(candidate.config.get(key) != found.config.get(key) for key in gate.options.fixed):
            return None
        try:
            ended = replay(target, candidate, rules, last_step=first.step, new=gate.in_run())
        except ConfigRefused:  # the target refuses this simpler scenario
            return None
        steps += ended.steps
        if ended.broken and ended.broken[0].rule == first.rule:
            return True
        if ended.session.rejected:
            return None
        if not ended.broken:
            passing.append(candidate)
        return False

    def still_breaks(candidate: Scenario) -> bool:
        nonlocal smallest
        broke = breaks(candidate) is True
        if broke:
            smallest = candidate
        return broke

    # Each trial of a hang takes as long as the step limit.
    if first.rule == NEVER_HANGS or others_first:
        attempts, smallest = 0, _until(gate, place, found, first.step)
    try:
        if gate.shrink_model is not None and attempts:
            target = gate.shrink_model
            if still_breaks(smallest):
                shrink(smallest, still_breaks, SHRINK_MODEL_ATTEMPTS * attempts)
                needs = needed_features(smallest, breaks)
            target = gate.target
            if smallest is not found and not still_breaks(smallest):
                smallest, needs = found, None
        if smallest is found and attempts:
            shrink(smallest, still_breaks, attempts)
        if needs is None and attempts:
            needs = needed_features(smallest, breaks)
        nearest += passing
    finally:
        finding = None
        base = gate.base
        is_shared = base is not None and smallest is found and base.has(first, found)
        if not is_shared:
            confirmed = confirm(gate, place, smallest, first)
            is_shared = bool(attempts and base and base.has_with_fewer(first, smallest))
        if not is_shared:
            seconds = shrunk_in + time.monotonic() - began
            finding = keep(
                *(gate, place, smallest, confirmed, found_after, seconds),
                *(needs, others_first, nearest),
            )
    return finding
