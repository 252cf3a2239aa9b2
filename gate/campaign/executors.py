"""Where items run: processes of this machine, or a Dask cluster. Nothing else knows of either."""

import hashlib
import multiprocessing
import os
import queue
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..explore.checkpoint import version_of_code
from ..judging.hypothesis_home import set_hypothesis_home
from ..processes.cluster import ClusterError, Connection, WorkerLost
from ..processes.watchdog import end_with_parent
from ..processes.worker_timeout import block_sigint
from .examples import database_of
from .items import Item
from .results import Result
from .running import run_item

AHEAD = 2  # items per worker that are handed out, so that none waits for the next
ALONE = threading.Lock()  # the engines are not made for threads


class Ran(NamedTuple):
    """An item that a worker ran: with what result, for how many seconds of CPU, where, and by
    which code."""

    result: Result
    seconds: float
    worker: str
    code: str


class Finished(NamedTuple):
    """What became of an item; None where its worker was lost, so that it must run again."""

    item: Item
    ran: Ran | None


class Executor(Protocol):
    """Runs items, in any order, each until it is finished or its worker is lost."""

    @property
    def width(self) -> int:
        """Items that it can use at once."""

    def submit(self, item: Item) -> None:
        """Hand an item out."""

    def finished(self, seconds: float) -> list[Finished]:
        """What has become of items since it was asked last; waits so long for the first.

        Raises:
            ClusterError: nothing will come any more.
        """


def work(item: Item, database: str | None) -> Ran:
    """Run one item in this process."""
    with ALONE, warnings.catch_warnings():
        # Threads of a Dask worker use `random` while Hypothesis draws, which blames strategies.
        warnings.filterwarnings("ignore", "Do not use the `random` module", category=Warning)
        set_hypothesis_home()
        began = _cpu_seconds()
        result = run_item(item, database_of(database) if database else None)
        seconds = _cpu_seconds() - began
    return Ran(result, seconds, f"{socket.gethostname()}/{os.getpid()}", code())


@cache
def code() -> str:
    """A digest of what results follow from: models, predicates and the plan, Hypothesis and Z3."""
    digest = hashlib.sha256(version_of_code())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    for package in ("hypothesis", "z3-solver"):
        digest.update(version(package).encode())
    return digest.hexdigest()


def check_code(told: str, worker: str) -> None:
    """Raise ClusterError unless a worker runs the code that we run."""
    if told != code():
        raise ClusterError(f"{worker} runs another version of schedproof, Hypothesis or Z3")


class Pool:
    """Processes of this machine. Where one dies, all are replaced. `run` runs an item in one."""

    def __init__(
        self,
        workers: int,
        database: str | None,
        run: Callable[[Item, str | None], Ran] = work,
    ) -> None:
        self._run = run
        self._workers = workers
        self._database = database
        self._ended: queue.SimpleQueue[tuple[Item, Future[Ran]]] = queue.SimpleQueue()
        self._pool = self._new()
        self.width = AHEAD * workers

    def submit(self, item: Item) -> None:
        """Hand an item out."""
        with block_sigint():  # the first item starts the processes
            try:
                future = self._pool.submit(self._run, item, self._database)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = self._new()
                future = self._pool.submit(self._run, item, self._database)
        future.add_done_callback(lambda done: self._ended.put((item, done)))

    def finished(self, seconds: float) -> list[Finished]:
        """What has become of items."""
        return [Finished(item, _ran(future)) for item, future in _taken(self._ended, seconds)]

    def close(self) -> None:
        """End the processes, whatever they do."""
        processes = list((self._pool._processes or {}).values())
        for process in processes:
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._workers, mp_context=context, initializer=end_with_parent)


def _ran(future: "Future[Ran]") -> Ran | None:
    """What came out; None where the worker died.

    Raises:
        Exception: what the item could not be sent for, say.
    """
    if future.cancelled():
        return None
    try:
        return future.result()
    except BrokenProcessPool:
        return None


class Cluster:
    """The workers of a Dask cluster. `run` runs an item in one."""

    def __init__(
        self,
        address: str,
        database: str | None,
        run: Callable[[Item, str | None], Ran] = work,
    ) -> None:
        """Connect.

        Raises:
            InputError: Dask is not installed, or no scheduler answers at the address.
        """
        self._connection = Connection(address)
        self._database = database
        self._run = run
        self._ended: queue.SimpleQueue[tuple[Item, Any]] = queue.SimpleQueue()

    @property
    def width(self) -> int:
        """Two items for each thread that a worker offers now."""
        return max(AHEAD * self._connection.threads, AHEAD)

    def submit(self, item: Item) -> None:
        """Hand an item out."""
        ended = self._ended
        self._connection.submit(
            lambda done: ended.put((item, done)), self._run, item, self._database
        )

    def finished(self, seconds: float) -> list[Finished]:
        """What has become of items.

        Raises:
            ClusterError: the scheduler is gone, or a worker cannot run items.
        """
        taken = [*_taken(self._ended, seconds)]
        found = [Finished(item, self._result(future)) for item, future in taken]
        self._connection.check()
        return found

    def close(self) -> None:
        """Take back what has not run, and leave the cluster to others."""
        self._connection.close()

    def _result(self, future: Any) -> Ran | None:
        try:
            ran: Ran = self._connection.result(future)
        except WorkerLost:
            return None
        check_code(ran.code, f"{self._connection.address}: worker {ran.worker}")
        return ran


def _taken(ended: "queue.SimpleQueue[Any]", seconds: float) -> Iterator[Any]:
    """Everything in the queue; waits for the first."""
    with suppress(queue.Empty):
        yield ended.get(timeout=seconds)
        while True:
            yield ended.get_nowait()


def _cpu_seconds() -> float:
    """Of this process, and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextmanager
def running(make: Callable[[], Any]) -> Iterator[Any]:
    """An executor, closed on leaving."""
    executor = make()
    try:
        yield executor
    finally:
        executor.close()
