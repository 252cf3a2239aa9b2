"""A Dask cluster: functions that run on its workers, however many come and go."""

import importlib
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...model.errors import InputError

CONNECT_SECONDS = 10.0
ADDRESS = re.compile(r"(?:tcp|tls)://[^/\s]+:\d+")


class ClusterError(Exception):
    """The cluster is gone, or does not do; `str()` is one line."""


class WorkerLost(Exception):  # noqa: N818 (an event, not an error)
    """The worker that a function ran on is gone: it must run again."""


class Connection:
    """The client of a cluster."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises:
            InputError: Dask is not installed, or no scheduler answers at the address.
        """
        if not ADDRESS.fullmatch(address):
            raise InputError("--cluster", f"{address!r}; valid: tcp://HOST:PORT")
        try:
            distributed: Any = importlib.import_module("distributed")
        except ImportError:
            problem = "Dask is not installed; pip install dask distributed"
            raise InputError("--cluster", problem) from None
        for name in [*logging.root.manager.loggerDict]:  # what it has to say, one line says
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._lost = (distributed.scheduler.KilledWorker, distributed.client.FutureCancelledError)
        self._futures: set[Any] = set()
        self.address = address
        try:
            self._client: Any = distributed.Client(
                address, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError("--cluster", f"{address}: {why}") from None

    @property
    def threads(self) -> int:
        """What the workers that are there now offer; 0 where it is not known."""
        with suppress(Exception):
            return int(sum(self._client.nthreads().values()))
        return 0

    def submit(self, done: Callable[[Any], None], work: Callable[..., Any], *args: Any) -> None:
        """Run `work` on a worker; `done` gets its future, in another thread.

        Raises:
            ClusterError: the scheduler is gone.
        """
        try:
            future = self._client.submit(work, *args, pure=False)
        except Exception as error:
            raise self._gone(error) from None
        self._futures.add(future)
        future.add_done_callback(done)

    def result(self, future: Any) -> Any:
        """What came out of a function that has ended.

        Raises:
            WorkerLost: its worker is gone.
            ClusterError: the scheduler is gone, or the worker cannot run the function.
        """
        self._futures.discard(future)
        try:
            return future.result(timeout=CONNECT_SECONDS)
        except (*self._lost, TimeoutError):  # a result that is not fetched dies with its worker
            self.check()
            raise WorkerLost from None
        except Exception as error:
            raise self._gone(error) from None

    def check(self) -> None:
        """Raise ClusterError where the scheduler is gone."""
        if self._client.status != "running":
            raise self._gone(None)

    def close(self) -> None:
        """Take back what has not run, and leave the cluster to others."""
        with suppress(Exception):
            self._client.cancel(list(self._futures), force=True)
        with suppress(Exception):
            self._client.close(timeout=2)

    def _gone(self, error: Exception | None) -> ClusterError:
        why = f"{type(error).__name__}: {error}".splitlines()[0] if error else "it is gone"
        return ClusterError(f"cluster {self.address}: {why}")
