"""A process that works with a target of its own leaves without a word."""

import signal
import sys
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest

from schedproof.gate.processes import work_process
from schedproof.gate.processes.executors import ClusterError, DaskCluster


@pytest.mark.parametrize("told", [True, False])
def test_what_a_search_raises_when_it_has_to_leave_is_no_error(monkeypatch, told):
    def left_between_two_steps():
        with suppress(SystemExit):
            work_process.leave(0, None) if told else None
        raise AssertionError

    monkeypatch.setattr(work_process, "_leaving", False)
    with nullcontext() if told else pytest.raises(AssertionError):
        work_process.until_told(left_between_two_steps)


def test_work_that_has_ended_may_be_ended_by_a_signal_at_once():
    """Amid what Python does at its end an exception would be printed, and swallowed."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        for ends in (lambda: None, sys.exit):
            signal.signal(signal.SIGTERM, work_process.leave)
            with suppress(SystemExit):
                work_process.until_told(ends)
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


class Unanswered:
    """A future that has ended, and whose result no worker has any more."""

    def result(self, timeout):
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
