"""The engines of a comparison: the corpus, and Hypothesis at each scale, on a pair.

The scales are searched one after the other, or in processes. What one scale finds is known at the
next, so that nothing is found twice. In processes a scale is searched as if those before it found
nothing more; where they do, it is searched again. The result is the same for every number of
processes.
"""

import pickle
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

from ...model.faults import ConfigRefused, TargetBroken, TargetFault
from ...properties.checking.difference import HANG
from ...properties.checking.differential_target import Coverage, Pair, Refused, Side
from ...properties.search.run import run_search
from ...properties.search.state import Hooks, Search, SearchOptions, StopSearch
from ..console import interrupts
from ..judging.context import BreakOff
from ..judging.events import Notice, Progress
from ..judging.profiles import set_hypothesis_home
from ..judging.verdict import EngineRun
from ..processes.work_process import WorkProcess
from ..targets import probe as probing
from ..targets.factory import opened
from ..targets.probe import ProbeRequest, as_usual
from .context import Diff, DiffFound, Opening, book
from .corpus import keep_long_ones, replay_corpus, replay_seeds
from .keeping import keep_refused, keep_smallest
from .verdict import DiffFinding

DIED = BreakOff("a process of the comparison died", "")


def run_scales(diff: Diff, scales: Sequence[str]) -> None:
    """The seeds of each scale, and its search.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was found until then is in `diff`.
        TargetFault: in this process, a target is none.
    """
    left = list(scales)
    while left and diff.fault is None:
        if diff.jobs == 1 or len(left) == 1 or diff.enough or diff.hangs:
            _run_here(diff, left.pop(0))
            continue
        known = len(diff.found)
        with _at_work(diff, left[: diff.jobs]) as workers:
            for worker in workers:
                _take(diff, worker)
                left.pop(0)
                if len(diff.found) > known or diff.fault is not None:
                    break  # those after it did not know


def _run_here(diff: Diff, scale: str) -> None:
    replay_seeds(diff, scale)
    search_scale(diff, scale)


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


class _Task(NamedTuple):
    openings: tuple[Opening, ...]
    diff: Diff
    scale: str


class _Ended(NamedTuple):
    found: Mapping[str, DiffFinding]
    engines: list[EngineRun]
    coverage: Coverage
    refused: Mapping[str, Refused]
    cannot_abort: Mapping[bool, str]
    fault: BreakOff | None


@contextmanager
def _at_work(diff: Diff, scales: Sequence[str]) -> Iterator[list[WorkProcess]]:
    """A process for each scale; they are gone at the end."""
    workers: list[WorkProcess] = []
    try:
        for scale in scales:
            alone = replace(diff, pair=None, report=None, engines=[], jobs=1)  # type: ignore[arg-type]
            task = _Task(diff.openings, alone, scale)
            workers.append(WorkProcess.start(_run_scale, pickle.dumps(task)))
        yield workers
    finally:
        for worker in workers:
            worker.ask_to_end()
        for worker in workers:
            worker.end()


def _take(diff: Diff, worker: WorkProcess) -> None:
    """Report what a process reports, until its scale is done, and add what is new."""
    while True:
        try:
            message: Notice | Progress | DiffFound | _Ended = worker.pipe.recv()
        except EOFError:
            diff.fault = DIED
            return
        if isinstance(message, _Ended):
            break
        if isinstance(message, DiffFound):
            diff.found[message.finding.shape] = message.finding
        diff.report(message)
    diff.found |= message.found
    diff.engines += message.engines
    diff.fault = message.fault
    pair = diff.pair
    pair.coverage.add(message.coverage)
    for shape, refused in message.refused.items():
        pair.refused.setdefault(shape, refused)
    pair.cannot_abort |= message.cannot_abort


def _run_scale(pipe: Connection, packed: bytes) -> None:
    task: _Task = pickle.loads(packed)
    set_hypothesis_home()
    with ExitStack() as stack:
        sides = [_side(stack, one) for one in task.openings]
        diff = replace(task.diff, pair=Pair(*sides), report=pipe.send)
        try:
            _run_here(diff, task.scale)
        except TargetFault as fault:
            diff.fault = BreakOff.of(fault, "".join(side.stderr() for side in sides))
        pair = diff.pair
        covered = pair.coverage, pair.refused, pair.cannot_abort
        pipe.send(_Ended(diff.found, diff.engines, *covered, diff.fault))


def _side(stack: ExitStack, one: Opening) -> Side:
    there = stack.enter_context(opened(one.spec, step_limit=one.step_limit, offline=True))
    return Side(there.target, one.system, one.revision, stderr=there.stderr)


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
        run_scales(diff, scales)
        if diff.fault is None:
            keep_long_ones(diff, long_ones)
            keep_refused(diff)
    except KeyboardInterrupt:
        diff.interrupted = True
    except TargetFault as fault:
        diff.fault = BreakOff.of(fault, diff.stderr())


def probe(diff: Diff) -> list[str]:
    """The scales whose configurations both take; where there is none, without the features that one
    of them refuses."""
    request = ProbeRequest(diff.pair, diff.system, diff.revision, (), diff.fixed)
    scales, _, refusals = as_usual(request)
    if not scales:
        scales, refusals = _feature_by_feature(diff, request), {}
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


def _feature_by_feature(diff: Diff, request: ProbeRequest) -> list[str]:
    """The scales that both take with the features that both have; the others are fixed, and said.

    Raises:
        ConfigRefused: there is no such scale.
    """
    try:
        capabilities = probing.probe(request)
    except ConfigRefused as refusal:
        words = str(refusal).replace("the target refuses the configuration of every scale: ", "")
        raise ConfigRefused(f"there is no scale that both targets take: {words}") from None
    for line in capabilities.left_out:
        diff.report(Notice(line.replace("the target refuses", "one of them refuses")))
    diff.fixed = capabilities.fixed[capabilities.scales[0]]
    return capabilities.scales
