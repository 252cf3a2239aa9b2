"""The engines of a comparison: the corpus, and Hypothesis at each scale, on a pair."""

import time
from collections import Counter
from functools import partial

from ...model.faults import ConfigRefused, TargetBroken, TargetFault
from ...properties.checking.difference import HANG
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, StopSearch
from ..console import interrupts
from ..judging.events import Notice, Progress
from ..targets import capabilities
from ..targets.capabilities import Subject, as_usual
from .context import Diff, book
from .corpus import keep_long_ones, replay_corpus, replay_seeds
from .keeping import keep_refused, keep_smallest


def run_diff(diff: Diff) -> None:
    """Probe both, replay the corpus, search; what came out is in `diff`.

    The seeds of a scale come before its search; a target that hangs is not searched any more.
    Ctrl-C and a target that breaks off end the engines; what was found until then is kept.

    Raises:
        KeyboardInterrupt: Ctrl-C while they are still asked what they take.
        TargetFault, ConfigRefused: one does not start, or there is no scale that both take.
    """
    scales = probe(diff)
    try:
        long_ones = replay_corpus(diff)
        for scale in scales:
            replay_seeds(diff, scale)
            search_scale(diff, scale)
        keep_long_ones(diff, long_ones)
        keep_refused(diff)
    except KeyboardInterrupt:
        diff.interrupted = True
    except TargetFault as fault:
        diff.fault = fault


def probe(diff: Diff) -> list[str]:
    """The scales whose configurations both take; where there is none, without the features that one
    of them refuses."""
    subject = Subject(diff.pair, diff.system, diff.revision, (), diff.fixed)
    scales, _, refusals = as_usual(subject)
    if not scales:
        scales, refusals = _feature_by_feature(diff, subject), {}
    diff.pair.refused.clear()  # a scale that one of them does not take is left out
    for scale, words in refusals.items():
        diff.report(Notice(f"scale {scale} left out: {words}"))
    first, second = (side.started for side in diff.pair.sides)
    assert first is not None
    assert second is not None
    diff.report(
        Notice(
            f"A: {first.name} {first.version}; B: {second.name} {second.version}; "
            f"scales {', '.join(scales)}"
        )
    )
    return scales


def _feature_by_feature(diff: Diff, subject: Subject) -> list[str]:
    """The scales that both take with the features that both have; the others are fixed, and said.

    Raises:
        ConfigRefused: there is no such scale.
    """
    try:
        probed = capabilities.probe(subject)
    except ConfigRefused as refusal:
        words = str(refusal).replace("the target refuses the configuration of every scale: ", "")
        raise ConfigRefused(f"there is no scale that both targets take: {words}") from None
    for line in probed.left_out:
        diff.report(Notice(line.replace("the target refuses", "one of them refuses")))
    diff.fixed = probed.fixed[probed.scales[0]]
    return probed.scales


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
