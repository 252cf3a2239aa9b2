"""A watched command: its streams, its end, and that of all that it started."""

import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest

from schedproof.gate.processes import executors, work_process
from schedproof.gate.processes.executors import ClusterError, DaskCluster
from schedproof.gate.processes.watchdog import WatchedProcess, run_watched

from ..targets.test_pipe import NEEDS_PROC, is_gone

SLEEPS = "import time; time.sleep(600)"


def python(body):
    return [sys.executable, "-S", "-c", body]


def test_what_a_command_prints_and_how_it_ends():
    body = "import sys; print(sys.stdin.read()[::-1]); sys.stderr.write('oh'); sys.exit(7)"
    done = run_watched(python(body), b"abc", stderr=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"cba\n", b"oh")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_command_that_a_signal_ended_says_so(number):
    process = WatchedProcess(python(SLEEPS))
    process.send_signal(number)
    assert process.wait(20) == -number
    process.send_signal(number)  # to nothing
    process.end()


def test_a_command_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        run_watched(["/no/such/command"])


@NEEDS_PROC
def test_what_a_command_has_left_behind_is_over_when_it_is():
    body = f"""
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], start_new_session=True)
print(left.pid)
"""
    assert is_gone(int(run_watched(python(body)).stdout))


@NEEDS_PROC
def test_a_command_ends_when_we_are_killed():
    body = f"""
import os, signal
from schedproof.gate.processes.watchdog import WatchedProcess
print(WatchedProcess([{sys.executable!r}, "-c", {SLEEPS!r}]).leader, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert is_gone(int(done.stdout))


# A command that turns on the watchdog, and has a child in another session.
TURNS = f"""
import os, signal, subprocess, sys
left = subprocess.Popen([sys.executable, "-S", "-c", {SLEEPS!r}], start_new_session=True)
print(os.getpid(), left.pid, flush=True)
def parent(process):
    return int(open(f"/proc/{{process}}/stat").read().rpartition(")")[2].split()[1])
"""
STRIKES = {
    "stops its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "stops all above": "[os.kill(p, signal.SIGSTOP) for p in (os.getppid(), parent(os.getppid()))]",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "kills its grandparent": "os.kill(parent(os.getppid()), signal.SIGKILL)",
}


@NEEDS_PROC
@pytest.mark.parametrize("strike", STRIKES)
def test_a_command_that_turns_on_its_watchdog_ends_with_all_that_it_started(strike):
    process = WatchedProcess(python(f"{TURNS}{STRIKES[strike]}\n{SLEEPS}"), stdout=subprocess.PIPE)
    with process.stdout:
        family = [int(word) for word in process.stdout.readline().split()]
        began = time.monotonic()
        process.end()
    assert time.monotonic() - began < 5
    assert all(is_gone(member) for member in family)


@NEEDS_PROC
@pytest.mark.parametrize(("strike", "times"), [("KILL", 20), ("STOP", 2)])
def test_a_command_is_known_even_if_it_turns_on_its_watchdog_at_once(strike, times):
    """A shell is faster than a watchdog that names the command after it has started it."""
    for _ in range(times):
        process = WatchedProcess(["/bin/sh", "-c", f"kill -{strike} $PPID; sleep 600"])
        process.end()
        assert is_gone(process.leader)


@NEEDS_PROC
def test_a_command_that_kills_its_parent_goes_on():
    body = "import os, signal, sys; os.kill(os.getppid(), signal.SIGKILL); print(1); sys.exit(5)"
    done = run_watched(python(body))
    assert (done.returncode, done.stdout) == (5, b"1\n")


@NEEDS_PROC
def test_a_process_of_multiprocessing_ends_when_its_parent_is_killed():
    body = """
import multiprocessing, os, signal, sys, time
from schedproof.gate.processes.watchdog import end_with_parent
def work(pipe):
    end_with_parent()
    pipe.send(os.getpid())
    time.sleep(600)
if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=work, args=(theirs,)).start()
    print(ours.recv(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, check=False)
    assert is_gone(int(done.stdout))


@pytest.mark.parametrize("told", [True, False])
def test_what_a_search_raises_when_it_has_to_leave_is_no_error(monkeypatch, told):
    def left_between_two_steps():
        with suppress(SystemExit):
            work_process.leave(0, None) if told else None
        raise AssertionError

    monkeypatch.setattr(work_process, "_leaving", False)
    with nullcontext() if told else pytest.raises(AssertionError):
        work_process.run_until_leaving(left_between_two_steps)


def test_work_that_has_ended_may_be_ended_by_a_signal_at_once():
    """Amid what Python does at its end an exception would be printed, and swallowed."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        for ends in (lambda: None, sys.exit):
            signal.signal(signal.SIGTERM, work_process.leave)
            with suppress(SystemExit):
                work_process.run_until_leaving(ends)
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

    async def greet(*_):
        """The scheduler answers."""

    monkeypatch.setattr(executors, "_greet", greet)
    return DaskCluster(print, "tcp://127.0.0.1:1")


def test_a_result_that_died_with_its_worker_is_a_lost_worker(cluster):
    assert cluster._result(Unanswered()) is None


def test_without_a_scheduler_it_is_a_lost_cluster(cluster):
    cluster._client.status = "closed"
    with pytest.raises(ClusterError, match=r"it is gone$"):
        cluster._result(Unanswered())
