"""The client of a Dask cluster distinguishes a lost worker from a lost cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from schedproof.gate.processes.executors import ClusterError, DaskCluster


class Unanswered:
    """A future that has ended, and whose result no worker has any more."""

    def result(self, timeout: float) -> Any:
        raise TimeoutError


@pytest.fixture
def cluster(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    client = SimpleNamespace(status="running")
    monkeypatch.setattr(distributed, "Client", lambda *address, **options: client)
    return DaskCluster(print, "tcp://127.0.0.1:1")


def test_a_result_that_died_with_its_worker_is_a_lost_worker(cluster):
    assert cluster._result(Unanswered()) is None


def test_without_a_scheduler_it_is_a_lost_cluster(cluster):
    cluster._client.status = "closed"
    with pytest.raises(ClusterError, match=r"it is gone$"):
        cluster._result(Unanswered())
