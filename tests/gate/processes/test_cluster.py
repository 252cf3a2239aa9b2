"""The client of a Dask cluster distinguishes a lost worker from a lost cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from schedproof.gate.processes.cluster import ClusterError, Connection, WorkerLost


class Unanswered:
    """A future that has ended, and whose result no worker has any more."""

    def result(self, timeout: float) -> Any:
        raise TimeoutError


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    client = SimpleNamespace(status="running")
    monkeypatch.setattr(distributed, "Client", lambda *address, **options: client)
    return Connection("tcp://127.0.0.1:1")


def test_a_result_that_died_with_its_worker_is_a_lost_worker(connection: Connection) -> None:
    with pytest.raises(WorkerLost):
        connection.result(Unanswered())


def test_without_a_scheduler_it_is_a_lost_cluster(connection: Connection) -> None:
    connection._client.status = "closed"
    with pytest.raises(ClusterError, match=r"it is gone$"):
        connection.result(Unanswered())
