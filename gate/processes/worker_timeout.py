"""Work in a process of its own, which ends when its time is over: solvers overrun their limits."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from .watchdog import end_with_parent


class Unanswered(Exception):  # noqa: N818 (an answer, not an error)
    """The work ended without an answer; `str()` says why in one line."""


def bounded(seconds: float, work: Callable[..., Iterator[Any]], *args: Any) -> Iterator[Any]:
    """What `work(*args)` yields in another process, as it comes.

    Raises:
        Unanswered: the time is over (the process is killed), the work raised, or it died.
    """
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
                raise Unanswered("the process of the solver died") from None
            if kind == "end":
                return
            if kind == "failed":
                raise Unanswered(value)
            yield value
        raise Unanswered(f"the time limit of {seconds:g} s was reached")
    finally:
        process.kill()
        process.join()


@contextmanager
def block_sigint() -> Iterator[None]:
    """Processes that start within ignore Ctrl-C: the process that started them ends them."""
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
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        pipe.send(("end", None))
