"""Measure what judging costs: compare the gate's own runs with the same operations on the bare
target.

Hypothesis searches once, and every operation is recorded. Then three tasks take turns:

- the search is repeated;
- the recorded operations go to the target under the monitor, without Hypothesis;
- the recorded operations go to the bare target, one at a time. If the target supports it,
  consecutive steps go in one request, as the gate sends them.

The figure is the CPU time of this process and of the target's. Wall-clock time is reported too:
judging takes less of it if the target works ahead on another core. On a busy machine, wall-clock
time mostly shows what other processes do.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from schedproof.gate.targets.checkouts import known_checkouts
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.gate.targets.supported_releases import ReleaseError
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.errors import InputError
from schedproof.model.faults import ConfigRefused
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import Reply, Target
from schedproof.properties.checking.session import Session
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.spec.catalogue import load

from .figure import FigurePlan, NotMeasured, Row

RELEASE, OTHER = "sendnn-inference==2.1.2", "vllm==0.19.1"
WITHOUT = {"watermark": 0, "reserve_full_isl": False}  # for a release that lacks these options
CHECKOUT = "nano-vllm"
STEP_LIMIT = 60.0  # seconds; generous, because the machine may be busy
TURNS = 3  # measurements, of which the fastest counts
# Linux derives the id of a process's CPU clock from the process id and this number. The ticks in
# /proc would be too coarse.
CPU_CLOCK = 2
Operation = tuple[str, tuple[Any, ...]]


class MeasuredTarget(NamedTuple):
    """A target, the scale and size of its search, and the configuration keys for which it allows
    only one value."""

    spec: str
    scale: str
    runs: int
    rounds: int
    fixed: Mapping[str, Any] = MappingProxyType({})


class Spent(NamedTuple):
    """The CPU seconds of both processes together, and wall-clock seconds."""

    cpu: float
    clock: float


class MeasuredRound(NamedTuple):
    """The cost of the same operations in the gate, under the monitor alone and on the bare
    target."""

    steps: int
    gate: Spent
    judged: Spent
    bare: Spent


class Recording:
    """A target that records its operations and passes them on."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.operations: list[Operation] = []

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        self.operations.append(("start", (system, revision, config)))
        return self._target.start(system, revision, config)

    def add(self, request: Mapping[str, Any]) -> Reply:
        self.operations.append(("add", (request,)))
        return self._target.add(request)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        args = (id, True) if inside else (id,)
        self.operations.append(("abort", args))
        return self._target.abort(*args)

    def control(self, kind: str) -> Reply:
        self.operations.append(("control", (kind,)))
        return self._target.control(kind)

    def step(self) -> Reply:
        self.operations.append(("step", ()))
        return self._target.step()

    def stop(self) -> Reply:
        return self._target.stop()


def subjects(quick: bool) -> Iterator[MeasuredTarget]:
    """Yield the model, and the real schedulers at the block sizes that they accept."""
    yield MeasuredTarget("model", "small", 8 if quick else 60, 2 if quick else 7)
    yield MeasuredTarget(
        RELEASE, "short" if quick else "tight", 3 if quick else 10, 1 if quick else 4
    )
    yield MeasuredTarget(OTHER, "tight", 3 if quick else 30, 1 if quick else 4, WITHOUT)
    yield MeasuredTarget(CHECKOUT, "small", 8 if quick else 40, 2 if quick else 7)


def rows(quick: bool) -> Iterator[Row]:
    """Yield a few rows for each target. For a target that is not installed, yield one row that
    says so."""
    for subject in subjects(quick):
        name = subject.spec.replace("==", " ")
        try:
            measured = measure(subject)
        except (InputError, ReleaseError) as why:
            hint = f"${known_checkouts()[CHECKOUT].variable} names no checkout"
            reason = hint if subject.spec == CHECKOUT and _unnamed() else str(why)
            yield Row(what=name, value=None, unit="ms/step", note=f"not measured: {reason}")
            continue
        yield from reported(name, measured)


def reported(name: str, measured: Sequence[MeasuredRound]) -> Iterator[Row]:
    """Yield the medians over the rounds: CPU milliseconds per step, and ratios within a round."""
    steps = sum(ran.steps for ran in measured)
    for what in ("bare", "judged", "gate"):
        both = [(getattr(ran, what), ran) for ran in measured]
        clock = median(it.clock / ran.bare.clock for it, ran in both)
        yield Row(
            what=f"{name}, {what}",
            value=median(1000 * it.cpu / ran.steps for it, ran in both),
            unit="ms/step",
            ratio=median(it.cpu / ran.bare.cpu for it, ran in both),
            to=f"{name}, bare",
            note=f"{steps:,} steps" if what == "bare" else f"by the clock {clock:.2f}",
        )


def measure(subject: MeasuredTarget) -> list[MeasuredRound]:
    """Measure several rounds, each with different runs.

    Raises:
        InputError, ReleaseError: the target is not available.
    """
    spec = parse_target(subject.spec)
    system, revision = spec.default_system, spec.default_revision() or "sound"
    with opened(spec, step_limit=STEP_LIMIT, offline=True) as open_target:
        target = open_target.target
        target.start(system, revision, full_config(system, revision, {}))  # not timed
        return [round_of(target, system, revision, subject, seed) for seed in range(subject.rounds)]


def round_of(
    target: Target, system: str, revision: str, subject: MeasuredTarget, seed: int
) -> MeasuredRound:
    """Measure one round, alternating between the search, its operations under the monitor, and its
    operations on the bare target."""
    rules, spent = load(system), clocks(target)
    operations = record_search(target, system, revision, subject, seed)
    works: dict[str, Callable[[], object]] = {
        "gate": lambda: record_search(target, system, revision, subject, seed),
        "judged": lambda: judge(target, operations, system, revision, rules),
        "bare": lambda: ask(target, operations),
    }
    turns = [{name: spent(work) for name, work in works.items()} for _ in range(TURNS)]
    steps = max(sum(op == "step" for op, _ in operations), 1)
    return MeasuredRound(
        steps, **{name: quickest([turn[name] for turn in turns]) for name in works}
    )


def quickest(turns: Sequence[Spent]) -> Spent:
    """Return the smallest of each kind of time: a disturbance can only make it longer."""
    return Spent(min(turn.cpu for turn in turns), min(turn.clock for turn in turns))


def record_search(
    target: Target, system: str, revision: str, subject: MeasuredTarget, seed: int
) -> Sequence[Operation]:
    """Search a target, and return the operations that it receives. The same seed gives the same
    operations."""
    recording = Recording(target)
    options = SearchOptions(
        recording, system, revision, load(system), subject.scale, fixed=subject.fixed
    )
    # Ignore findings, so that they do not end the round.
    search = Search(options, Hooks(new=lambda: lambda broken, scenario: []))
    run_search(search, subject.runs, seed, 0)
    return recording.operations


def ask(target: Target, operations: Sequence[Operation]) -> None:
    """Send the operations to the bare target, one after the other."""
    for op, args in operations:
        getattr(target, op)(*args)


def judge(
    target: Target,
    operations: Sequence[Operation],
    system: str,
    revision: str,
    rules: Any,
) -> None:
    """Send the operations to the target under the monitor."""
    session: Session | None = None
    for op, args in operations:
        if op == "start":
            with suppress(ConfigRefused):  # there are no operations left
                session = Session(target, system, revision, args[2], rules)
        elif op == "add":
            assert session is not None
            session.add(msgspec.convert({"arrival": 0, **args[0]}, Request))
        elif op == "abort":
            assert session is not None
            session.abort(args[0], len(args) > 1)
        else:
            assert session is not None
            session.step()


def clocks(target: Target) -> Callable[[Callable[[], object]], Spent]:
    """Return a function that measures how long a task takes in this process and in the target's.

    Raises:
        NotMeasured: the target was restarted during the task, or its CPU time cannot be read.
    """

    def process() -> int | None:
        return target.process_id if isinstance(target, PipeTarget) else None

    def cpu() -> float:
        other = process()
        return time.process_time() + (0.0 if other is None else cpu_of(other))

    def spent(work: Callable[[], object]) -> Spent:
        used_before, cpu_before, before = process(), cpu(), time.perf_counter()
        work()
        if process() != used_before:
            raise NotMeasured(
                "the target's process has ended, and another process has taken its place"
            )
        return Spent(cpu() - cpu_before, time.perf_counter() - before)

    return spent


def cpu_of(process: int) -> float:
    """Return the CPU seconds that all threads of a process have used so far.

    Raises:
        NotMeasured: the system does not provide them.
    """
    clock = (~process << 3) | CPU_CLOCK
    try:
        return time.clock_gettime(clock)
    except OSError:
        raise NotMeasured("the system does not show the CPU time of another process") from None


def _unnamed() -> bool:
    return not os.environ.get(known_checkouts()[CHECKOUT].variable)


PLAN = FigurePlan(
    "overhead",
    "What the gate costs compared with the bare target",
    "the same operations on the bare target; under the monitor (judged); "
    "as Hypothesis made them (gate); CPU of both processes, as real targets have their own",
    rows,
)
