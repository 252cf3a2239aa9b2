"""Run tasks in processes of this machine, or on the workers of a Dask cluster.

An executor runs one function on many tasks, in any order. Tasks can be pickled and do not depend on
each other, so `run_tasks` can repeat a task whose worker has died. All executors have the same
interface.
"""

import asyncio
import hashlib
import importlib
import logging
import os
import queue
import re
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...model.errors import InputError
from .work_process import begin_process, shielded, spawn_context

PACKAGE = Path(__file__).resolve().parents[2]


AHEAD = 2  # tasks handed out per worker, so that no worker waits for its next task
DEATHS = 5  # give a task up after its worker has died this many times
ALONE = 2  # after this many deaths, run a task alone, so that no other task is blamed
PAUSE = 0.5  # seconds between two checks of the time limit
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 2.0
NO_SCHEDULER = "a server answers there, but not as a Dask scheduler does"
ADDRESS = re.compile(r"(?:tcp|tls)://[^/\s]+:\d+")
T = TypeVar("T")


class ClusterError(Exception):
    """Raised if the cluster cannot be reached or used. The message is a single line."""


class TaskResult(NamedTuple):
    """The result of a task, the worker process that computed it, and the worker's code version
    (`our_code`)."""

    result: Any
    worker: str
    code: str


def run_tasks(
    executor: "Executor", tasks: Iterable[T], ends: float = float("inf")
) -> Iterator[tuple[T, TaskResult | None]]:
    """Yield each task with its result, in the order in which the tasks finish.

    A task whose worker dies runs again; after two deaths, it runs alone. After `DEATHS` deaths it
    is given up, and its result is None. No task starts after `ends`, a time from `time.monotonic`.
    `tasks` may be infinite: it is read only as fast as workers need it. Raise ClusterError if the
    cluster can no longer be reached.
    """
    numbered = enumerate(tasks)
    waiting: deque[tuple[int, T]] = deque()
    running: dict[int, T] = {}
    deaths: Counter[int] = Counter()

    def has_room(number: int) -> bool:
        if deaths[number] >= ALONE or any(deaths[other] >= ALONE for other in running):
            return not running
        return len(running) < executor.width

    while True:
        while time.monotonic() < ends:
            if not waiting:
                waiting.extend(islice(numbered, 1))
            if not waiting or not has_room(waiting[0][0]):
                break
            number, task = waiting.popleft()
            running[number] = task
            executor.submit(number, task)
        if not running:
            return
        for number, ran in executor.finished(PAUSE):
            task = running.pop(number)
            deaths[number] += ran is None
            if ran is None and deaths[number] < DEATHS:
                waiting.appendleft((number, task))
            else:
                yield task, ran


@contextmanager
def make_executor(
    work: Callable[[Any], Any], workers: int, cluster: str | None
) -> "Iterator[Executor]":
    """Yield an executor that runs `work` in `workers` processes, or on the Dask cluster at
    `cluster`.

    Raise InputError if Dask is not installed, or if no scheduler answers at the address.
    """
    executor = Pool(work, workers) if cluster is None else DaskCluster(work, cluster)
    try:
        yield executor
    finally:
        executor.close()


@cache
def our_code() -> str:
    """Return a digest of the code that results depend on: this package, Hypothesis and Z3."""
    digest = hashlib.sha256(code_version("spec", "model", "properties", "solver", "gate").encode())
    for package in ("hypothesis", "z3-solver"):
        digest.update(version(package).encode())
    return digest.hexdigest()


def _run(work: Callable[[Any], Any], task: Any) -> TaskResult:
    return TaskResult(work(task), f"{socket.gethostname()}/{os.getpid()}", our_code())


class Pool:
    """Run work in processes of this machine. If one of them dies, all of them are replaced."""

    def __init__(self, work: Callable[[Any], Any], workers: int) -> None:
        self._work = work
        self._workers = workers
        self._ended: queue.SimpleQueue[tuple[int, Future[TaskResult]]] = queue.SimpleQueue()
        self._pool = self._new()
        self.width = AHEAD * workers

    def submit(self, number: int, task: Any) -> None:
        with shielded():  # submitting the first task starts the processes
            try:
                future = self._pool.submit(_run, self._work, task)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = self._new()
                future = self._pool.submit(_run, self._work, task)
        future.add_done_callback(lambda done: self._ended.put((number, done)))

    def finished(self, seconds: float) -> list[tuple[int, TaskResult | None]]:
        """Wait up to `seconds` for a task to end. Return the number and result of each task that
        has ended; the result is None if the worker died."""
        return [(number, self._result(future)) for number, future in _all(self._ended, seconds)]

    def close(self) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _new(self) -> ProcessPoolExecutor:
        context = spawn_context()
        return ProcessPoolExecutor(self._workers, mp_context=context, initializer=begin_process)

    def _result(self, future: "Future[TaskResult]") -> TaskResult | None:
        if future.cancelled():
            return None
        try:
            return future.result()
        except BrokenProcessPool:
            return None


class DaskCluster:
    """Run work on a Dask cluster, whose workers may join and leave at any time."""

    def __init__(self, work: Callable[[Any], Any], address: str) -> None:
        if not ADDRESS.fullmatch(address):
            raise InputError("--cluster", f"{address!r}; valid: tcp://HOST:PORT")
        try:
            distributed: Any = importlib.import_module("distributed")
        except ImportError:
            problem = "Dask is not installed; install it with: pip install dask distributed"
            raise InputError("--cluster", problem) from None
        # Silence the loggers: our own error says the same on one line.
        for name in [*logging.root.manager.loggerDict]:
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._work = work
        self._address = address
        self._lost = (distributed.scheduler.KilledWorker, distributed.client.FutureCancelledError)
        self._futures: set[Any] = set()
        self._ended: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        try:
            asyncio.run(_greet(distributed, address))
            self._client: Any = distributed.Client(
                address, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError("--cluster", f"{address}: {why}") from None

    @property
    def width(self) -> int:
        """The number of tasks to hand out: two for each thread that the workers currently offer."""
        with suppress(Exception):
            return max(AHEAD * int(sum(self._client.nthreads().values())), AHEAD)
        return AHEAD

    def submit(self, number: int, task: Any) -> None:
        ended = self._ended
        try:
            future = self._client.submit(_run, self._work, task, pure=False)
        except Exception as error:
            raise self._error(error) from None
        self._futures.add(future)
        future.add_done_callback(lambda done: ended.put((number, done)))

    def finished(self, seconds: float) -> list[tuple[int, TaskResult | None]]:
        ended = [(number, self._result(future)) for number, future in _all(self._ended, seconds)]
        self._check()
        return ended

    def close(self) -> None:
        with suppress(Exception):
            self._client.cancel(list(self._futures), force=True)
        with suppress(Exception):
            self._client.close(timeout=2)

    def _result(self, future: Any) -> TaskResult | None:
        self._futures.discard(future)
        try:
            ran: TaskResult = future.result(timeout=CONNECT_SECONDS)
        except (*self._lost, TimeoutError):  # the worker died before its result was fetched
            self._check()
            return None
        except Exception as error:
            raise self._error(error) from None
        if ran.code != our_code():
            why = f"{self._address}: worker {ran.worker} has another version of schedproof"
            raise ClusterError(f"{why}, Hypothesis or Z3")
        return ran

    def _check(self) -> None:
        if self._client.status != "running":
            raise self._error(None)

    def _error(self, error: Exception | None) -> ClusterError:
        why = f"{type(error).__name__}: {error}".splitlines()[0] if error else "it is gone"
        return ClusterError(f"cluster {self._address}: {why}")


async def _greet(distributed: Any, address: str) -> None:
    """Raise an OSError unless a Dask scheduler answers. The client would wait forever for an answer
    from another server, such as that of Dask's dashboard."""
    security = distributed.Security().get_connection_args("client")
    try:
        async with asyncio.timeout(CONNECT_SECONDS + ANSWER_SECONDS):
            async with distributed.rpc(
                address, timeout=CONNECT_SECONDS, connection_args=security
            ) as scheduler:
                answer = await scheduler.identity()
    except (TimeoutError, distributed.comm.CommClosedError):
        answer = {}
    except OSError:  # nobody answers
        raise
    except Exception:  # whatever else Dask makes of an answer in another protocol
        answer = {}
    if answer.get("type") != "Scheduler":  # a worker answers as well
        raise OSError(NO_SCHEDULER)


Executor = Pool | DaskCluster


def _all(ended: "queue.SimpleQueue[Any]", seconds: float) -> Iterator[Any]:
    """Wait up to `seconds` for an item in the queue. Then yield all items that are in the queue."""
    with suppress(queue.Empty):
        yield ended.get(timeout=seconds)
        while True:
            yield ended.get_nowait()


@cache
def code_version(*layers: str) -> str:
    """Return a hexadecimal digest of the Python and TOML files of these layers."""
    digest = hashlib.sha256()
    for layer in layers:
        for path in sorted((PACKAGE / layer).rglob("*.*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
