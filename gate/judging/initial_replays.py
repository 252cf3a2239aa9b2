"""Replay given scenarios: seeds, the user's corpus and known failures before the search, and
workloads after it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.scenario import Request, Scenario
from ...model.systems import full_config, make_model
from ...model.target import Target
from ...properties.checking.replay import Outcome, replay
from ...properties.checking.translation import with_fixed
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import PROGRESS
from ...properties.search.state import NO_END
from ...properties.search.workloads import number_of_runs, workloads
from ...properties.shrinking.shrink import until
from ...spec.catalogue import Rule
from ..console import interrupts
from ..corpus.folder import max_steps, seed_corpus, shortest_first
from ..targets.scales import scales_of
from . import verdict
from .base import STANDSTILL
from .context import GateContext
from .deviations import Deviations
from .findings import Place, collect_into, confirm, keep, shrink_and_keep
from .verdict import Notice, Progress

# Shrinking a scenario may take this many steps in total, so long scenarios get fewer attempts.
SHRINK_STEPS = 20_000
# A function that is called with a scenario that breaks a rule, the outcome, and the run's duration
# in seconds. It returns whether to replay the scenario past this failure.
Found = Callable[[Scenario, Outcome, float], bool]


def replay_seeds(gate: GateContext, scale: str, fixed: Mapping[str, Any]) -> frozenset[str]:
    """Replay the seed corpus of a scale, keep a small scenario for each broken rule, and return the
    broken rules.

    With the `fixed` values, a request may be impossible to run, and a target need not refuse it. So
    skip scenarios with such requests.
    """
    corpus = _short_enough(gate, seed_corpus(gate.options.system, scale))
    options = gate.options
    with_keys = [
        (
            scenario,
            replace(
                scenario,
                config=with_fixed(options.system, options.revision, scenario.config, fixed),
            ),
        )
        for scenario in corpus
    ]
    chosen = [
        meant for scenario, meant in with_keys if _can_run(gate, meant) >= _can_run(gate, scenario)
    ]
    return frozenset(_replay_and_shrink(gate, scale, chosen)) if chosen else frozenset()


def replay_workloads(
    gate: GateContext, shape: str, within: str, fixed: Mapping[str, Any], known: frozenset[str]
) -> None:
    """Run the workloads of one shape, in the configuration of the scale `within`."""
    options = gate.options
    runs = workloads(
        *(options.system, options.revision, shape, scales_of(options.system).scales[within]),
        fixed,
        seed=options.seed,
        number=number_of_runs(options.system, shape, options.profile.workloads),
    )
    # Later failures of a run are most likely consequences of the first, so stop there. The budget
    # ends a run that makes no progress: it could take some 100,000 steps until ALL-R06 is broken.
    budget = options.profile.steps
    _replay_and_shrink(gate, shape, [*runs], verdict.WORKLOADS, known, budget, go_on=False)


def _replay_and_shrink(
    gate: GateContext,
    scale: str,
    chosen: Sequence[Scenario],
    engine: str = "corpus",
    broken: frozenset[str] = frozenset(),
    budget: int | None = None,
    *,
    go_on: bool = True,
) -> set[str]:
    """Replay scenarios and shrink the failures of rules that are not in `broken`. Return the rules
    that are broken.

    All runs together take at most `budget` steps. Unless `go_on` is set, stop at the first failure.
    """
    known, moved = {*broken}, set[str]()
    shrunk = 0

    def on_failure(scenario: Scenario, outcome: Outcome, seconds: float) -> bool:
        nonlocal shrunk
        first, profile = outcome.broken[0], gate.options.profile
        attempts = min(
            profile.shrink_runs + profile.shrink_attempts, SHRINK_STEPS // (first.step + 1)
        )
        place = Place(engine, scale, frozenset(known))
        others_first = gate.others_first(first.rule, shrunk)
        finding = shrink_and_keep(
            gate, place, scenario, first, attempts, seconds, others_first=others_first
        )
        if finding is None:  # so that the search looks for another failure of this rule
            moved.add(first.rule)
        known.update({first.rule} if finding is None else finding.rules)
        shrunk += finding is not None and finding.costs
        return go_on and not gate.results.hung

    _replay(gate, engine, scale, chosen, on_failure, known, budget)
    return known - moved


def _can_run(gate: GateContext, scenario: Scenario) -> set[str]:
    """Return the requests that the model accepts. If the model refuses the configuration, return
    all of them."""
    try:
        model = make_model(scenario.system, gate.options.revision, scenario.config)
    except InputError:
        return set(scenario.request_ids)
    return {request.id for request in scenario.requests if model.refusal(request) is None}


def replay_builtin(gate: GateContext) -> None:
    """Replay the built-in scenarios that are short enough for the profile, shortest first.

    Skip scenarios whose configuration contradicts a fixed value.
    """
    scenarios = shortest_first(gate.options.system)
    if gate.options.fixed:
        scenarios = {name: entry for name, entry in scenarios.items() if _has_fixed(gate, entry)}
    _replay_and_shrink(gate, verdict.PUBLISHED, _short_enough(gate, scenarios))


def _has_fixed(gate: GateContext, scenario: Scenario) -> bool:
    options = gate.options
    try:
        config = full_config(options.system, options.revision, scenario.config)
        return config == full_config(options.system, options.revision, config | {**options.fixed})
    except InputError:
        return False


def replay_own(gate: GateContext) -> None:
    """Replay the user's corpus. If a scenario breaks a rule, keep it without shrinking it."""
    known: set[str] = set()

    def on_failure(scenario: Scenario, outcome: Outcome, seconds: float) -> bool:
        first = outcome.broken[0]
        place = Place(verdict.OWN_CORPUS, "given", frozenset(known))
        again = confirm(gate, place, scenario, first)
        known.update(keep(gate, place, scenario, again, seconds, 0.0).rules)
        return not gate.results.hung

    whole, system = gate.options.corpus, gate.options.system
    own = [scenario for scenario in whole if scenario.system == system]
    if others := len(whole) - len(own):
        about = f"{others} of {len(whole)} scenarios left out: they are not for {system}"
        gate.report(Notice(f"{verdict.OWN_CORPUS}: {about}"))
    if own:
        _replay(gate, verdict.OWN_CORPUS, "given", own, on_failure, known)


def _short_enough(gate: GateContext, scenarios: Mapping[str, Scenario]) -> list[Scenario]:
    chosen = []
    for name, scenario in scenarios.items():
        if max_steps(scenario) <= gate.options.profile.corpus_steps:
            chosen.append(scenario)
        else:
            gate.report(Notice(f"corpus: {name} left out of profile {gate.options.profile_name}"))
    return chosen


def _replay(
    gate: GateContext,
    engine: str,
    scale: str,
    chosen: Sequence[Scenario],
    on_failure: Found,
    known: set[str],
    budget: int | None = None,
) -> None:
    """Run each scenario to its end. All runs together may take `budget` steps.

    `on_failure` is called for each newly broken rule. It adds the rule to `known`, and returns
    whether to run the scenario again, past this failure.
    """
    began = time.monotonic()
    totals: Counter[str] = Counter()
    complete = False
    try:
        for number, scenario in enumerate(chosen):
            interrupts.check()
            gate.report(Progress(f"{engine}, {scale}", number, len(chosen), totals["steps"]))
            meant = replace(scenario, revision=gate.options.revision, expect=None)
            last = None if budget is None else budget - totals["steps"] - 1
            if last is not None and last < 0:
                break
            place = Place(engine, scale)
            if not _replay_to_end(gate, meant, on_failure, known, totals, place, last):
                break
        complete = True
    finally:
        seconds = time.monotonic() - began
        gate.results.engines.append(verdict.EngineRun.of(engine, scale, totals, seconds, complete))


def _replay_to_end(
    gate: GateContext,
    meant: Scenario,
    on_failure: Found,
    known: set[str],
    totals: Counter[str],
    place: Place,
    last: int | None = None,
) -> bool:
    """Replay one scenario up to step `last`, and return whether to continue with the next scenario.

    If a rule is broken and `on_failure` returns true, replay the scenario again, past that failure.
    """
    runs = totals["runs"] + 1
    while True:
        began = time.monotonic()
        try:
            # If the revision's model refuses the configuration, no rule describes it, so skip the
            # scenario even if the release accepts it.
            make_model(meant.system, gate.options.revision, meant.config)
            rules = gate.rules_beyond(known)
            outcome = replay(gate.target, meant, rules, last_step=last, new=gate.in_run())
            all_rejected = len(outcome.session.rejected) == len(meant.requests)
            if place.engine == verdict.OWN_CORPUS and all_rejected and not outcome.broken:
                raise ConfigRefused("every request")
        except (ConfigRefused, InputError) as refusal:  # for example because it lacks an option
            totals["refused"] += 1
            gate.results.refusals[str(refusal)] += 1
            if place.engine == verdict.OWN_CORPUS:
                name = meant.name or "a scenario"
                about = f"{name} left out, the target refuses it: {refusal}"
                gate.report(Notice(f"{verdict.OWN_CORPUS}: {about}"))
            return True
        totals.update(outcome.counts)
        totals["runs"] = runs  # this counts as one run, however often it is repeated
        gate.results.count(outcome)
        gate.record_run(meant, place.engine, place.scale)
        is_new = bool(outcome.broken) and outcome.broken[0].rule not in known
        if is_new and on_failure(meant, outcome, time.monotonic() - began):
            if outcome.broken[0].rule in PROGRESS:
                # A stalled run may take 100,000 steps until ALL-R06 is broken, so limit it.
                last = min(outcome.steps + STANDSTILL, NO_END if last is None else last)
            continue
        if place.engine == verdict.OWN_CORPUS:
            _report_unexercised(gate, meant, outcome, known)
        history = outcome.session.monitor.history
        gate.results.reach = gate.results.reach.with_run(_accepted_part(meant, outcome), history)
        return not is_new and not gate.results.hung


def _report_unexercised(
    gate: GateContext, scenario: Scenario, outcome: Outcome, known: set[str]
) -> None:
    """Report that a scenario of the corpus did not exercise its own rule. Say nothing if that rule
    is broken already, or if the user left it out."""
    rule, options = (scenario.origin or {}).get("rule"), gate.options
    if not rule or rule in known or outcome.broken or outcome.exercised[rule]:
        return
    judged = {judged.id for judged in options.rules}
    if rule in options.excluded or (options.chosen and rule not in judged):
        return
    about = f"its rule {rule} was not exercised, or cannot be checked here"
    gate.report(Notice(f"{verdict.OWN_CORPUS}: {scenario.name or 'a scenario'}: {about}"))


def _accepted_part(scenario: Scenario, outcome: Outcome) -> Scenario:
    took_place = until(scenario, outcome.steps)
    session = outcome.session
    accepted = (
        replace(request, abort_at=None, abort_inside=False)
        if request.id in session.not_aborted
        else request
        for request in took_place.requests
        if request.id not in session.rejected
    )
    return replace(took_place, requests=tuple(accepted))


def replay_crashes(gate: GateContext, configs: Sequence[Mapping[str, Any]]) -> None:
    """Start the target again in the configurations in which the probe made it crash. Report each
    crash as a finding, unless a known deviation explains it."""
    options = gate.options
    request = Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=1)
    scenarios = [
        Scenario(
            system=options.system,
            revision=options.revision,
            config={**config},
            requests=(request,),
        )
        for config in configs
    ]
    if scenarios and not gate.results.hung:
        _replay_and_shrink(gate, "start", scenarios, "probe")


def replay_deviations(gate: GateContext) -> None:
    """Replay the scenarios of known failures to their ends. Report every other failure as a
    finding."""
    began = time.monotonic()
    settled = replay_entries(
        gate.deviations, gate.target, gate.options.revision, gate.options.rules
    )
    for outcome in settled:
        gate.results.count(outcome)
    for number, scenario in gate.deviations.scenarios.items():
        if gate.deviations.status.get(number, ("unused",))[0] not in ("known", "passes"):
            continue
        meant = replace(scenario, revision=gate.options.revision, expect=None)
        outcome = replay(gate.target, meant, gate.options.rules, new=gate.in_run())
        if outcome.broken:
            place = Place("deviations", "given")
            again = confirm(gate, place, meant, outcome.broken[0])
            keep(gate, place, meant, again, 0.0, 0.0)
    if settled:
        steps = sum(outcome.steps for outcome in settled)
        ran = verdict.EngineRun(
            "deviations", "given", len(settled), steps, time.monotonic() - began
        )
        gate.results.engines.append(ran)


def replay_entries(
    deviations: Deviations, target: Target, revision: str, rules: Sequence[Rule]
) -> list[Outcome]:
    """Replay the scenarios of the entries for these rules that have no state yet. Set their states,
    and return the outcomes."""
    ids, outcomes = {rule.id for rule in rules}, []
    for number, scenario in deviations.scenarios.items():
        if number in deviations.status or deviations.entries[number].rule not in ids:
            continue
        try:
            meant = replace(scenario, revision=revision, expect=None)
            broken: list[list[Broken]] = []
            outcome = replay(target, meant, rules, new=collect_into(broken))
        except (ConfigRefused, InputError) as refusal:
            deviations.refused(number, str(refusal))
            continue
        if outcome.session.rejected and not broken:
            name, why = next(iter(outcome.session.rejected.items()))
            deviations.refused(number, f"{name}: {why}")
            continue
        deviations.replayed(number, broken)
        outcomes.append(outcome)
    deviations.replayed_all()
    return outcomes
