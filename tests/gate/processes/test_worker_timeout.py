"""Work in another process: what it yields comes as it comes, and its time is limited."""

import importlib
import os
import re
import signal
import sys

import pytest

from schedproof.gate.processes.work_process import TimeLimit, Unanswered, run_in_process

from ..targets.test_pipe import NEEDS_PROC

# A process that is spawned imports its work by name.
WORK = """
import os, signal, time

def numbers(most):
    yield from range(most)

def process_and_then_sleeps():
    yield os.getpid()
    time.sleep(600)

def gets_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    yield 1

def raises():
    yield 1
    raise ValueError("no such thing")

def dies():
    yield 1
    os._exit(7)

def spins():
    while True:
        spent = time.process_time()
        while time.process_time() < spent + 0.1:
            pass
        yield spent

def computes_on_a_busy_core(seconds, others):
    core = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, core)
    burners = [os.fork() for _ in range(others)]
    if 0 in burners:
        signal.alarm(60)  # ends it even if nobody kills it
        while True:
            pass
    until = time.process_time() + seconds
    began = time.monotonic()
    while time.process_time() < until:
        pass
    for burner in burners:
        os.kill(burner, signal.SIGKILL)
    yield time.monotonic() - began
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "work_to_bound.py").write_text(WORK, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "work_to_bound", raising=False)
    return importlib.import_module("work_to_bound")


def test_what_the_work_yields_comes_in_order(work):
    assert list(run_in_process(60, work.numbers, 4)) == [0, 1, 2, 3]
    assert list(run_in_process(60, work.numbers, 0)) == []


@pytest.mark.slow
def test_work_beyond_its_time_is_killed_and_what_it_gave_is_kept(work):
    given = []
    with pytest.raises(
        Unanswered, match="the time limit of 8 s was reached; --time-limit allows more"
    ):
        given.extend(run_in_process(8, work.process_and_then_sleeps))
    [process] = given
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@NEEDS_PROC
@pytest.mark.slow
def test_time_in_which_other_processes_have_the_core_does_not_count(work):
    limit = TimeLimit.begin(5)
    [elapsed] = run_in_process(limit, work.computes_on_a_busy_core, 2, 3)
    assert elapsed > 5  # by the clock, the work took longer than its limit
    assert sum(limit.waits) > 2
    with pytest.raises(Unanswered) as late:
        list(run_in_process(limit, work.process_and_then_sleeps))
    assert re.fullmatch(
        r"the time limit of 5 s was reached, not counting \d+ s in which other processes had the "
        "processor; --time-limit allows more",
        str(late.value),
    )


@NEEDS_PROC
def test_work_that_computes_ends_at_its_limit(work):
    spent = list[float]()
    with pytest.raises(Unanswered):
        spent.extend(run_in_process(3, work.spins))
    assert spent[-1] < 4


def test_an_error_of_the_work_is_told(work):
    with pytest.raises(Unanswered, match="ValueError: no such thing"):
        list(run_in_process(60, work.raises))


def test_ctrl_c_does_not_reach_the_process(work):
    assert list(run_in_process(60, work.gets_ctrl_c)) == [1]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_process_that_dies_is_told(work):
    with pytest.raises(Unanswered, match="the solver's process died"):
        list(run_in_process(60, work.dies))


def test_who_stops_listening_leaves_no_process(work):
    given = run_in_process(60, work.process_and_then_sleeps)
    process = next(given)
    given.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
