"""A process that works for its parent and reports through a pipe.

The process opens its own targets, and ends them before it exits.
"""

import multiprocessing
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
    """Raised if the work ended without an answer; `str()` is the reason in one line."""


def bounded(seconds: float, work: Callable[..., Iterator[Any]], *args: Any) -> Iterator[Any]:
    """Run `work(*args)` in another process, and yield what it yields, as it comes. Raise Unanswered
    if it raised, died or was killed at the time limit, and InputError if it raised that."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, work, args), daemon=True)
    with block_sigint():
        process.start()
    theirs.close()
    ends = time.monotonic() + seconds
    try:
        while ours.poll(max(ends - time.monotonic(), 0)):
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
        raise Unanswered(f"the time limit of {seconds:g} s was reached")
    finally:
        process.kill()
        process.join()


@contextmanager
def block_sigint() -> Iterator[None]:
    """Make processes that start in the block ignore Ctrl-C, because the parent ends them."""
    # Starting the tracker unblocks SIGINT, so it must run before the signal is blocked.
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


END_PATIENCE = 3.0  # seconds for a process to end its target, and itself
Work = Callable[[Connection, bytes], None]


class WorkProcess(NamedTuple):
    """A process and the pipe through which it reports."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: Work, task: bytes) -> "WorkProcess":
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(work, theirs, task), daemon=False)
        with block_sigint():
            process.start()
        theirs.close()
        return cls(process, ours)

    def ask_to_end(self) -> None:
        self.process.terminate()

    def end(self) -> None:
        """Wait for a process that was asked to exit, and kill it if it does not."""
        self.process.join(END_PATIENCE)
        self.process.kill()
        self.process.join()


_leaving = False


def leave(*_: object) -> None:
    global _leaving
    _leaving = True
    sys.exit()


def _run(work: Work, pipe: Connection, task: bytes) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A hanging target does not notice that its pipe is closed, so `leave` must end it.
    signal.signal(signal.SIGTERM, leave)
    interrupts.raise_again(SystemExit, leave)
    run_until_leaving(partial(work, pipe, task))


def run_until_leaving(work: Callable[[], None]) -> None:
    """Run the work in this process until it ends or the process is asked to exit."""
    try:
        work()
    except Exception:  # an interrupted Hypothesis may raise AssertionError
        if not _leaving:
            raise
    finally:
        # The target has ended, so `leave` has nothing to do; during shutdown Python would print its
        # exception.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
