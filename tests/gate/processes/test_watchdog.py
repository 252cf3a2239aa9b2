"""A watched command: its streams, its end, and that of all that it started."""

import signal
import subprocess
import sys

import pytest

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
