"""Search each scale with Hypothesis, then shrink and keep the failures."""

import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...model.faults import TargetBroken, TargetFault
from ...model.scenario import Scenario
from ...properties.rules.registry import NEVER_HANGS
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, StopSearch
from ...spec.systems import OWN_RULES
from ..console import interrupts
from .context import GateContext
from .findings import Place, shrink_and_keep
from .verdict import EngineRun, Finding, Progress


def search_scale(
    gate: GateContext,
    scale: str,
    fixed: Mapping[str, Any] | None = None,
    known: frozenset[str] = frozenset(),
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    shrunk: int = 0,
    avoid: frozenset[str] = frozenset(),
) -> None:
    """Search one scale with Hypothesis, and repeat the search as long as it finds another broken
    rule.

    `known` lists the rules that are known to be broken at this scale; `shrunk` is how many of them
    count towards --max-failures. `choices` gives the values of the configuration keys that the
    target declares. `avoid` lists the kinds of configuration that the target refuses.
    """
    began = time.monotonic()
    checked = {rule.id for rule in gate.options.rules if rule.checked}
    totals = Counter[str]()
    profile, seed = gate.options.profile, gate.options.seed
    examples, steps = profile.examples, profile.steps
    complete = False
    try:
        while examples > 0 and steps > 0 and (gate.base is not None or not known >= checked):
            if gate.results.hung:
                return
            options = SearchOptions(
                *(
                    gate.target,
                    gate.options.system,
                    gate.options.revision,
                    gate.rules_beyond(known),
                    scale,
                    known,
                ),
                fixed=fixed or {},
                choices=choices or {},
                avoid=avoid,
                max_steps=steps,
                shrink_steps=profile.shrink_steps,
            )
            before = _progress(
                gate, scale, gate.options.profile.examples - examples, totals["steps"]
            )
            search = _search_of(gate, options, before)
            attempts = 0  # nothing is shrunk after Ctrl-C
            try:
                has_room = shrunk < gate.options.max_failures
                shrink_runs = profile.shrink_runs if has_room and not gate.shrink_model else 0
                with interrupts.prefer_interrupt():
                    broken = run_search(search, examples, seed, shrink_runs)
                attempts = profile.shrink_attempts
                ended = search.exhausted or gate.results.hung
                if not broken and search.runs + search.empty < examples and not ended:
                    raise not_deterministic(search.runs, examples)
            finally:
                totals += search.counts
                gate.results.reach += search.reach
                gate.results.refusals.update(search.refused)
                gate.results.exercised.update(search.exercised)
                gate.results.exercised_cleanly |= search.exercised_cleanly
                gate.results.runs_cut_short.update(search.runs_cut_short)
                if search.failure is not None:
                    place = Place("hypothesis", scale, known)
                    finding = _keep_finding(gate, place, search, attempts, shrunk)
                    known |= {search.failure[1][0].rule} if finding is None else finding.rules
                    shrunk += finding is not None and finding.costs
            examples -= search.runs_to_failure if broken else examples
            steps -= search.steps_to_failure if broken else steps
            seed += 1
        complete = True
    finally:
        seconds = time.monotonic() - began
        gate.results.engines.append(EngineRun.of("hypothesis", scale, totals, seconds, complete))


def not_deterministic(runs: int, examples: int) -> TargetFault:
    """Describe a search that Hypothesis ended because the same choices led to different runs."""
    cause = "a rule of your own or the target" if OWN_RULES else "the target"
    why = f"the search ended after {runs} of {examples} runs: {cause} is not deterministic"
    return TargetBroken("step", why, "")


def _progress(gate: GateContext, scale: str, runs: int, steps: int) -> Progress:
    return Progress(f"hypothesis, {scale}", runs, gate.options.profile.examples, steps)


def _search_of(gate: GateContext, options: SearchOptions, before: Progress) -> Search:

    def ended(scenario: Scenario) -> None:
        # While Hypothesis shrinks, it repeats variants of a run that has been judged already.
        gate.record_run(scenario, "hypothesis", options.scale, judge=search.failure is None)

    search = Search(options, Hooks(gate.in_run, partial(_watch, gate, before), ended))
    return search


def _watch(gate: GateContext, before: Progress, search: Search) -> None:
    interrupts.check()
    hangs = search.failure is not None and search.failure[1][0].rule == NEVER_HANGS
    if hangs or gate.results.hung:
        raise StopSearch
    shrinking = search.failure is not None
    runs = before.runs + (search.runs_to_failure if shrinking else search.runs)
    runs = min(runs, before.of)  # Hypothesis replaces the runs that it discards
    steps = before.steps + search.steps
    gate.report(replace(before, runs=runs, steps=steps, shrinking=shrinking))


def _keep_finding(
    gate: GateContext, place: Place, search: Search, attempts: int, shrunk: int
) -> Finding | None:
    assert search.failure is not None
    scenario, (first, *_) = search.failure
    took = (search.found_after, search.shrink_seconds, gate.others_first(first.rule, shrunk))
    return shrink_and_keep(gate, place, scenario, first, attempts, *took)
