"""Run work in a process that reports through a pipe.

The process opens its own targets, and closes them before it exits.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from ...model.errors import InputError
from ..console import interrupts
from .watchdog import end_with_parent


class Unanswered(Exception):  # noqa: N818 (an answer, not an error)
    """Raised if the work ended without an answer. The message gives the reason in one line."""


class TimeLimit(NamedTuple):
    """A time limit of `seconds` that several pieces of work share. `ends` is the time at which it
    is reached."""

    seconds: float
    ends: float

    @classmethod
    def begin(cls, seconds: float) -> "TimeLimit":
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return max(self.ends - time.monotonic(), 0.0)

    def share(self, parts: int) -> "TimeLimit":
        """Return a limit for the next of `parts` pieces of work. It leaves each of the others an
        equal share of the remaining time."""
        return self._replace(ends=time.monotonic() + self.left / parts)


def run_in_process(
    limit: float | TimeLimit, work: Callable[..., Iterator[Any]], *args: Any
) -> Iterator[Any]:
    """Run `work(*args)` in another process, and yield each item as soon as the process yields it.

    Pass on an InputError. Raise Unanswered if the process raises any other error, dies, or is
    killed at the time limit.
    """
    process, ours = _spawn(_send, (work, args), daemon=True)
    limit = limit if isinstance(limit, TimeLimit) else TimeLimit.begin(limit)
    try:
        while ours.poll(limit.left):
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
        raise Unanswered(f"the time limit of {limit.seconds:g} s was reached")
    finally:
        process.kill()
        process.join()


def _spawn(
    work: Callable[..., None], args: tuple[Any, ...], *, daemon: bool
) -> tuple[BaseProcess, Connection]:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, *args), daemon=daemon)
    with block_sigint():
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def block_sigint() -> Iterator[None]:
    """Make processes that are started in the block ignore Ctrl-C. Their parent ends them itself."""
    # Starting the resource tracker unblocks SIGINT, so start it before the signal is blocked.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(pipe: Connection, work: Callable[..., Iterator[Any]], args: tuple[Any, ...]) -> None:
    end_with_parent()
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
    end_with_parent()
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
        # its exception.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
