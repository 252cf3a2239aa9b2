"""Run work in a process that reports through a pipe.

The process opens its own targets, and closes them before it exits.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from ...model.errors import InputError
from ..console import interrupts
from .watchdog import end_with_parent

SAFE_PATH, OURS = "PYTHONSAFEPATH", "schedproof"  # Python only checks whether there is a value
SAMPLE = 0.5  # seconds between two looks at the processor time of a process


class Unanswered(Exception):  # noqa: N818 (an answer, not an error)
    """Raised if the work ended without an answer. The message gives the reason in one line."""


@dataclass
class TimeLimit:
    """A time limit of `seconds` that several pieces of work share.

    The time in which a process of `run_in_process` waits for a processor does not count, so that
    other work on the machine does not change an answer. `ends` is the time at which the limit would
    be reached without such waits. `waits` collects the waits, in seconds.
    """

    seconds: float
    ends: float
    waits: list[float] = field(default_factory=list)

    @classmethod
    def begin(cls, seconds: float) -> "TimeLimit":
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return max(self.ends + sum(self.waits) - time.monotonic(), 0.0)

    def share(self, parts: int) -> "TimeLimit":
        """Return a limit for the next of `parts` pieces of work, so that each of them gets an equal
        share of the remaining time."""
        ends = time.monotonic() - sum(self.waits) + self.left / parts
        return TimeLimit(self.seconds, ends, self.waits)

    def __str__(self) -> str:
        waits = sum(self.waits)
        busy = f", not counting {waits:.0f} s in which other processes had the processor"
        return f"the time limit of {self.seconds:g} s was reached{busy * (waits >= 1)}"


def run_in_process(
    limit: float | TimeLimit, work: Callable[..., Iterator[Any]], *args: Any
) -> Iterator[Any]:
    """Run `work(*args)` in another process, and yield each item as soon as the process yields it.

    Pass on an InputError. Raise Unanswered if the process raises any other error, dies, or is
    killed at the time limit. Time for which the process waits for a processor does not count.
    """
    process, ours = _spawn(_send, (work, args), daemon=True)
    limit = limit if isinstance(limit, TimeLimit) else TimeLimit.begin(limit)
    waits = _Waits(process.pid, limit.waits)
    try:
        while _wait(ours, waits, limit):
            try:
                kind, value = ours.recv()
            except EOFError:
                raise Unanswered("the solver's process died") from None
            if kind == "end":
                return
            if kind == "refused":
                raise InputError(*value)
            if kind == "failed":
                raise Unanswered(value)
            yield value
        raise Unanswered(f"{limit}; --time-limit allows more")
    finally:
        process.kill()
        process.join()


class _Waits:
    """Measures the time for which a process waits for a processor, as an item of `TimeLimit.waits`.
    The time stays 0 if the system does not show the processor time of other processes."""

    def __init__(self, pid: int | None, waits: list[float]) -> None:
        self._stat, self._waits, self._item = Path(f"/proc/{pid}/stat"), waits, len(waits)
        self._began = self._last = time.monotonic()
        self._used = self._idle = 0.0
        waits.append(0.0)

    def update(self) -> None:
        """Look at the process again. If it is not ready to run, it has not waited for a processor
        since the last look."""
        try:
            stat = self._stat.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        state, *numbers = stat.rpartition(")")[2].split()  # the name before may contain anything
        ticks = sum(int(number) for number in numbers[10:12])  # in user code and in the system
        now, used = time.monotonic(), ticks / os.sysconf("SC_CLK_TCK")
        if state != "R":
            self._idle += max(now - self._last - (used - self._used), 0.0)
        self._last, self._used = now, used
        self._waits[self._item] = max(now - self._began - used - self._idle, 0.0)


def _wait(pipe: Connection, waits: _Waits, limit: TimeLimit) -> bool:
    """Wait until there is something to read from the process, or until its time limit is reached.
    Return whether there is."""
    ready = False
    waits.update()
    while not ready and (left := limit.left):
        ready = pipe.poll(min(left, SAMPLE))
        waits.update()
    return ready or pipe.poll()


def _spawn(
    work: Callable[..., None], args: tuple[Any, ...], *, daemon: bool
) -> tuple[BaseProcess, Connection]:
    context = spawn_context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, *args), daemon=daemon)
    with shielded():
        process.start()
    theirs.close()
    return process, ours


def spawn_context() -> SpawnContext:
    """Return the context for starting processes, with its resource tracker running."""
    with _safe_path():
        resource_tracker.ensure_running()
    return get_context("spawn")


@contextmanager
def shielded() -> Iterator[None]:
    """Shield processes of `spawn_context` that are started in the block. They ignore Ctrl-C,
    because their parent ends them itself, and import nothing from the working folder. Each of them
    must call `begin_process`."""
    with _safe_path():
        # Starting the resource tracker unblocks SIGINT, so start it before the signal is blocked.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep Python processes that are started in the block from importing modules of the working
    folder. `multiprocessing` runs `python -c`, which would look for `types.py` there first."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = before or OURS
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH)
        if before is not None:
            os.environ[SAFE_PATH] = before


def begin_process() -> None:
    """Make this process end with its parent, and start targets in the environment of the user."""
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]
    end_with_parent()


def _send(pipe: Connection, work: Callable[..., Iterator[Any]], args: tuple[Any, ...]) -> None:
    begin_process()
    try:
        for value in work(*args):
            pipe.send(("value", value))
    except InputError as error:
        pipe.send(("refused", (error.path, error.problem)))
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        pipe.send(("end", None))


END_PATIENCE = 3.0  # seconds that a process gets to end its target and exit
Work = Callable[[Connection, bytes], None]


class WorkProcess(NamedTuple):
    """A process and the pipe through which it reports."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: Work, task: bytes) -> "WorkProcess":
        return cls(*_spawn(_run, (work, task), daemon=False))

    def ask_to_end(self) -> None:
        self.process.terminate()

    def end(self) -> None:
        """Wait until a process that was told to exit has ended. Kill it if this takes too long."""
        self.process.join(END_PATIENCE)
        self.process.kill()
        self.process.join()


_leaving = False


def leave(*_: object) -> None:
    global _leaving
    _leaving = True
    sys.exit()


def _run(pipe: Connection, work: Work, task: bytes) -> None:
    begin_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A hanging target does not notice that its pipe is closed, so let `leave` end it.
    signal.signal(signal.SIGTERM, leave)
    interrupts.raise_again(SystemExit, leave)
    run_until_leaving(partial(work, pipe, task))


def run_until_leaving(work: Callable[[], None]) -> None:
    """Run the work in this process until it is done or the process is told to exit."""
    try:
        work()
    except Exception:  # Hypothesis may raise AssertionError when interrupted
        if not _leaving:
            raise
    finally:
        # The target has ended, so `leave` is no longer needed. During shutdown, Python would print
        # the exception that it raises.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
