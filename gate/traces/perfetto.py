"""Draw runs as Chrome trace events, the JSON format of Perfetto and chrome://tracing.

Each run becomes a process, and each request a thread. A step has no duration, so all steps are
drawn with the same length. Format: "Trace Event Format" of Chrome, with the kinds X (slice), C
(counter), i (instant) and M (names).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ...model.observation import Step
from ...model.scenario import Scenario
from ...properties.checking.replay import Outcome
from ...properties.rules.predicate import Broken
from ..console.option_checks import check_file, check_not_input
from ..console.output import json_line
from ..console.step_lines import News, step_news
from ..files.disk import write
from .run_events import Added, Begun, Event, Stepped

STEP_US = 1_000
STEPS_TRACK = 1
FIRST_REQUEST = 2
TrackEvent = dict[str, Any]


@dataclass
class Recorded:
    """A run to draw. `arrivals` gives, for each accepted request in order of arrival, the step
    before which it arrived. `broken` lists the broken rules with their steps."""

    title: str
    config: Mapping[str, Any]
    arrivals: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    broken: Sequence[Broken] = ()


class Phase(NamedTuple):
    """The state of a request from step `first` to step `last`, inclusive."""

    name: str
    first: int
    last: int


def check_perfetto(file: Path, read: Path) -> None:
    check_file("--perfetto", file)
    check_not_input("--perfetto", file, "the input", read)


def run_of(scenario: Scenario, outcome: Outcome, steps: list[Step]) -> Recorded:
    """Return the run of a scenario, with the requests that the target had accepted when the run
    ended."""
    started, rejected = outcome.session.started, outcome.session.rejected
    came = (request for request in scenario.requests if request.arrival < len(steps))
    requests = sorted(came, key=lambda request: request.arrival)
    return Recorded(
        f"{started.name} {started.version}",
        scenario.config,
        {request.id: request.arrival for request in requests if request.id not in rejected},
        steps,
        outcome.broken,
    )


def collect_runs(events: Iterable[Event], runs: list[Recorded]) -> Iterator[Event]:
    """Yield the events of a trace unchanged, and collect the data of each run in `runs`."""
    for event in events:
        if isinstance(event, Begun):
            started = event.started
            title = f"run {len(runs) + 1}, {started.name} {started.version}"
            runs.append(Recorded(title, event.config))
        elif isinstance(event, Added):
            runs[-1].arrivals[event.request.id] = len(runs[-1].steps)
        elif isinstance(event, Stepped):
            runs[-1].steps.append(event.step)
        yield event


def write_perfetto(file: Path, runs: Sequence[Recorded]) -> None:
    """Write the runs to a file, atomically. Raise FileError if the file cannot be written."""
    about = {
        "step_us": STEP_US,
        "time": f"every step is drawn as {STEP_US} µs, since steps have no duration of their own",
        "counters": "a counter shows the state after the step; without a volume or a tkv, it is 0",
    }
    events = (event for number, run in enumerate(runs, 1) for event in run_events(number, run))
    head = b'{"displayTimeUnit":"ms","otherData":' + json_line(about) + b',"traceEvents":[\n'
    write(file, head + b",\n".join(map(json_line, events)) + b"\n]}\n")


def run_events(pid: int, run: Recorded) -> Iterator[TrackEvent]:
    yield from _names(pid, run)
    tracks = {name: tid for tid, name in enumerate(run.arrivals, FIRST_REQUEST)}
    for name, tid in tracks.items():
        yield from _phases(pid, tid, name, run)
    last = None
    for number, step in enumerate(run.steps):
        news = step_news(number, step, last, run.config)
        yield from _step(pid, news)
        yield from _instants(pid, tracks, news)
        last = step
    yield from _counters(pid, run)
    for failure in run.broken:
        args = {"rule": failure.rule, "step": failure.step, "message": failure.message}
        yield _instant(pid, STEPS_TRACK, f"broken {failure.rule}", failure.step, args, scope="p")


def _names(pid: int, run: Recorded) -> Iterator[TrackEvent]:
    title = f"{run.title}, one step = {STEP_US} µs"
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": title}}
    for tid, name in enumerate(("steps", *run.arrivals), STEPS_TRACK):
        about = {"ph": "M", "pid": pid, "tid": tid}
        yield about | {"name": "thread_name", "args": {"name": name}}
        yield about | {"name": "thread_sort_index", "args": {"sort_index": tid}}


def _step(pid: int, news: News) -> Iterator[TrackEvent]:
    step, number = news.step, news.number
    args = {"step": number, "scheduled": step.scheduled, **news.fields}
    if news.volume is not None:
        args |= {"tkv": step.tkv, "volume": news.volume, "max_batch_tkv": news.limit}
    yield _slice(pid, STEPS_TRACK, step.kind, Phase(step.kind, number, number), args)
    if news.jumps and news.tkv is not None:
        before, now = news.tkv
        yield _instant(pid, STEPS_TRACK, f"jump {before} -> {now}", number, {"step": number})


def _phases(pid: int, tid: int, name: str, run: Recorded) -> Iterator[TrackEvent]:
    for phase in phases(name, run):
        steps = run.steps[phase.first : phase.last + 1]
        tokens = sum(step.scheduled.get(name, 0) for step in steps)
        args = {"first_step": phase.first, "last_step": phase.last, "tokens": tokens}
        shown = f"{phase.name} {tokens}" if phase.name == "prefill" else phase.name
        yield _slice(pid, tid, shown, phase, args)


def _instants(pid: int, tracks: Mapping[str, int], news: News) -> Iterator[TrackEvent]:
    step, number = news.step, news.number
    happened = [(name, "border", number) for name in news.borders]
    happened += [(name, "preempted", number) for name in step.preempted or ()]
    happened += [(name, why, number + 1) for name, why in (step.finished or {}).items()]
    for name, what, when in happened:
        if name in tracks:
            yield _instant(pid, tracks[name], what, when, {"step": number})


def phases(name: str, run: Recorded) -> Iterator[Phase]:
    """Yield the phases of a request. Steps in a row with the same state form one phase; each
    prefill chunk is a phase."""
    states = _states(name, run)
    for key, group in groupby(states, lambda state: (state[1], state[1] == "prefill" and state[0])):
        numbers = [number for number, _ in group]
        yield Phase(key[0], numbers[0], numbers[-1])


def _states(name: str, run: Recorded) -> Iterator[tuple[int, str]]:
    """Yield the steps from the arrival of a request to its end, each with the state of the
    request."""
    decodes = started = preempted = False
    for number in range(run.arrivals[name], len(run.steps)):
        step = run.steps[number]
        ended = name in (step.finished or {})
        if name in (step.preempted or ()):
            preempted, decodes = True, False
        if name in step.scheduled:
            started, preempted = True, name in (step.preempted or ())
            decoded = step.kind == "decode" or (step.kind == "mixed" and decodes)
            decodes = decodes or step.kind == "decode" or name in (step.emitted or {})
            yield number, "decode" if decoded else "prefill"
        elif ended:  # the request was aborted before this step
            return
        elif name in (step.paused or ()):
            yield number, "paused"
        elif preempted:
            yield number, "preempted"
        elif not started or name in (step.waiting or ()):
            yield number, "waiting"
        else:
            yield number, "not scheduled"
        if ended:
            return


def _counters(pid: int, run: Recorded) -> Iterator[TrackEvent]:
    last: dict[str, int] = {}
    for number, step in enumerate(run.steps):
        for name, value in _counted(step, "max_batch_tkv" in run.config):
            if last.get(name) != value:
                last[name] = value
                yield {
                    **{"ph": "C", "pid": pid, "tid": STEPS_TRACK, "ts": number * STEP_US},
                    **{"name": name, "args": {"value": value}},
                }


def _counted(step: Step, has_tkv: bool) -> Iterator[tuple[str, int]]:
    if has_tkv:
        decoded = len(step.scheduled) if step.kind == "decode" else 0
        yield "tkv (tokens)", step.tkv or 0
        yield "volume (batch x tkv, tokens)", decoded * (step.tkv or 0)
    for name in ("waiting", "running", "paused"):
        if (members := getattr(step, name)) is not None:
            yield f"{name} (requests)", len(members)
    if step.blocks is not None:
        yield "blocks held", len({block for held in step.blocks.values() for block in held})
    for name, blocks in (("free", step.free_blocks), ("reserved", step.reserved_blocks)):
        if blocks is not None:
            yield f"blocks {name}", blocks


def _slice(pid: int, tid: int, name: str, phase: Phase, args: Mapping[str, Any]) -> TrackEvent:
    return {
        **{"ph": "X", "pid": pid, "tid": tid, "cat": _category(tid), "ts": phase.first * STEP_US},
        **{"dur": (phase.last + 1 - phase.first) * STEP_US, "name": name, "args": args},
    }


def _instant(
    pid: int, tid: int, name: str, step: int, args: Mapping[str, Any], scope: str = "t"
) -> TrackEvent:
    about = {"ph": "i", "pid": pid, "tid": tid, "cat": _category(tid), "ts": step * STEP_US}
    return about | {"s": scope, "name": name, "args": args}


def _category(tid: int) -> str:
    return "step" if tid == STEPS_TRACK else "request"
