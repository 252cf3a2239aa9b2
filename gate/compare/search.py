"""Hypothesis at one scale, on a pair."""

import time
from collections import Counter
from functools import partial

from ...model.faults import TargetBroken
from ...properties.checking.difference import HANG
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, StopSearch
from ..console import interrupts
from ..judging.events import Notice, Progress
from .context import Diff, book
from .keeping import keep_smallest


def search_scale(diff: Diff, scale: str) -> None:
    """Hypothesis at one scale, again and again while it finds differences of new shapes."""
    if diff.enough:
        return
    began = time.monotonic()
    totals: Counter[str] = Counter()
    examples, seed = diff.profile.examples, diff.seed
    complete = False
    try:
        while examples > 0 and not diff.enough and not diff.hangs:
            diff.pair.tolerated = frozenset(diff.found)
            options = SearchOptions(
                diff.pair, diff.system, diff.revision, (), scale, diff.known, fixed=diff.fixed
            )
            search = Search(options, Hooks(watch=partial(_watch, diff, scale)))
            try:
                with interrupts.instead():
                    broken = run_search(search, examples, seed, diff.profile.shrink_runs)
                if not broken and search.runs < examples:
                    why = f"the search ended after {search.runs} of {examples} runs"
                    raise TargetBroken("step", f"{why}: a target is not deterministic", "")
            finally:
                totals += search.counts
            if search.failure is not None:
                attempts = diff.profile.shrink_attempts
                smallest, _ = search.failure
                keep_smallest(
                    *(diff, "hypothesis", scale, smallest, search.found_after, attempts),
                    search.shrink_seconds,
                )
            examples -= search.runs_to_failure if broken else examples
            seed += 1
        complete = not diff.hangs
        if diff.hangs:
            diff.report(Notice(f"hypothesis, {scale}: a target that hangs is searched no more"))
    finally:
        book(diff, "hypothesis", scale, totals, began, complete)


def _watch(diff: Diff, scale: str, search: Search) -> None:
    interrupts.check()
    if search.failure is not None and search.failure[1][0].rule.startswith(f"{HANG}: "):
        raise StopSearch
    diff.report(Progress(f"hypothesis, {scale}", search.runs, diff.profile.examples, search.steps))
