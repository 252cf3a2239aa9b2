"""A process that works for its parent with targets of its own, reports through a pipe, and ends
those targets whenever it has to leave."""

import signal
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import NamedTuple

from .watchdog import end_with_parent
from .worker_timeout import block_sigint

END_PATIENCE = 3.0  # seconds for a process to end its target, and itself
GC_CALLBACK, SOON = "gc_callback", 0.01  # Hypothesis's; seconds
Work = Callable[[Connection, bytes], None]


class WorkProcess(NamedTuple):
    """The process, and the pipe through which it reports."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: Work, task: bytes) -> "WorkProcess":
        """A process that runs `work` on its end of a pipe and the task."""
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(work, theirs, task), daemon=False)
        with block_sigint():
            process.start()
        theirs.close()
        return cls(process, ours)

    def ask_to_end(self) -> None:
        """Let it leave; `end` waits for it."""
        self.process.terminate()

    def end(self) -> None:
        """Wait for a process that was asked to leave; kill it where it does not."""
        self.process.join(END_PATIENCE)
        self.process.kill()
        self.process.join()


_leaving = False


def leave(_: int, frame: FrameType | None) -> None:
    """Leave, and end the target on the way. In a callback of the garbage collector, which would
    swallow that, a moment later."""
    global _leaving
    _leaving = True
    while frame is not None:
        if frame.f_code.co_name == GC_CALLBACK:
            signal.setitimer(signal.ITIMER_REAL, SOON)
            return
        frame = frame.f_back
    sys.exit()


def _run(work: Work, pipe: Connection, task: bytes) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A target that hangs does not notice that its pipe is closed: leaving ends it.
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGALRM, leave)
    until_told(partial(work, pipe, task))


def until_told(work: Callable[[], None]) -> None:
    """Work in this process, until that ends or has to leave."""
    try:
        work()
    except Exception:  # Hypothesis, left between two of its own steps, raises an AssertionError
        if not _leaving:
            raise
    finally:
        # The target has ended. An exception raised while Python shuts down would be printed.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
