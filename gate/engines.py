"""The engine that searches: Hypothesis at each scale. Findings are shrunk before they are kept."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..model.faults import TargetBroken, TargetFault
from ..properties.machine import Enough, Search, search
from ..properties.rules import NEVER_HANGS
from .events import Notice, Progress
from .shrinking import shrink_and_keep
from .state import Gate
from .verdict import EngineRun


def search_scale(
    gate: Gate,
    scale: str,
    fixed: Mapping[str, Any] | None = None,
    known: frozenset[str] = frozenset(),
) -> None:
    """Hypothesis at one scale, again and again while it finds rules that were not broken yet.

    `fixed`: the keys of the configuration that have one value only. `known`: the rules that are
    known to break at this scale.
    """
    began = time.monotonic()
    checked = {rule.id for rule in gate.rules if rule.checked}
    totals = Counter[str]()
    examples, seed = gate.profile.examples, gate.seed
    complete = False
    try:
        while examples > 0 and len(known) < gate.max_failures and not known >= checked:
            if NEVER_HANGS in known:
                gate.report(Notice(f"hypothesis, {scale}: a target that hangs is searched no more"))
                return
            hunt = Search(gate.target, gate.system, gate.revision, gate.rules, scale, known)
            hunt.fixed = fixed or {}
            hunt.new = gate.deviations.new
            before = _progress(gate, scale, gate.profile.examples - examples, totals["steps"])
            hunt.watch = lambda h=hunt, b=before: _watch(gate, h, b)
            attempts = 0  # one who breaks the search off does not wait for shrinking
            try:
                shrink_runs = 0 if gate.understudy else gate.profile.shrink_runs
                broken = search(hunt, examples, seed, shrink_runs)
                attempts = gate.profile.shrink_attempts
                if not broken and hunt.runs < examples:
                    raise not_deterministic(hunt.runs, examples)
            finally:
                totals += hunt.counts
                gate.at_stake.update(hunt.at_stake)
                if hunt.failure is not None:
                    known |= {_found(gate, scale, hunt, attempts)}
            examples -= hunt.runs_to_failure if broken else examples
            seed += 1
        complete = True
    finally:
        seconds = time.monotonic() - began
        gate.engines.append(EngineRun.of("hypothesis", scale, totals, seconds, complete))


def not_deterministic(runs: int, examples: int) -> TargetFault:
    """What a search that ended early shows: Hypothesis leaves it only where the same choices led
    to another run than before."""
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


def _found(gate: Gate, scale: str, hunt: Search, attempts: int) -> str:
    """Shrink, confirm and keep what a search found; the rule that it breaks first."""
    assert hunt.failure is not None
    scenario, (first, *_) = hunt.failure
    took = (hunt.found_after, hunt.shrink_seconds)
    shrink_and_keep(gate, "hypothesis", scale, scenario, first, attempts, *took)
    return first.rule
