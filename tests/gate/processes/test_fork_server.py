"""Targets that are forked from a server: each runs its own code, and ends like any other."""

import os
import signal
import sys
from pathlib import Path

import pytest

from schedproof.gate.processes import fork_server
from schedproof.gate.processes.fork_server import ForkedProcess
from schedproof.gate.targets import pipe
from schedproof.gate.targets.pipe import PipeTarget, forking
from schedproof.model.faults import TargetDied, TargetHung, TargetNotStarted

from ..targets.test_pipe import NEEDS_PROC, PATIENT, SHORT, is_gone
from .forked_engine import digest_of

pytestmark = NEEDS_PROC
COMMAND = [sys.executable, str(Path(__file__).with_name("forked_engine.py"))]
LEAVES = "subprocess.Popen(['sleep', '600'], start_new_session=True).pid"


@pytest.fixture
def imported(tmp_path):
    """The file to which each import of the slow module adds a line."""
    return tmp_path / "imported"


@pytest.fixture
def target(tmp_path, imported):
    """A function that returns the target of a changed copy."""

    def made(change, code="", step_limit=PATIENT, **variables):
        folder = tmp_path / change
        folder.mkdir()
        lines = ["import os, signal, subprocess, time", f"CHANGE = {change!r}", code]
        (folder / "scheduler.py").write_text("\n".join(lines))
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
        env |= {"IMPORTED": str(imported), "COPY": change, **variables}
        return PipeTarget(COMMAND, env=env, imports=["slow_import"], step_limit=step_limit)

    return made


@pytest.fixture
def pair(target):
    with (
        target("change") as change,
        target("base") as base,
        forking([change, base]) as server,
    ):
        change.forks = base.forks = server
        yield change, base


def start(target):
    return target.start("spyre", "documented", {})


def test_each_fork_runs_the_scheduler_of_its_own_folder(pair, tmp_path, imported):
    for name, item in zip(("change", "base"), pair, strict=True):
        told = start(item)
        file = tmp_path / name / "scheduler.py"
        assert (told["change"], told["file"]) == (name, str(file))
        assert told["digest"] == digest_of(file)
        assert told["pid"] == item.process_id
        assert told["variables"].items() >= {"COPY": name, "PYTHONPATH": str(file.parent)}.items()
        assert fork_server.VARIABLE not in told["variables"]
    assert len(imported.read_text().split()) == 1


@pytest.mark.parametrize(
    ("crash", "code"), [("os.abort()", -signal.SIGABRT), ("os._exit(7)", 7), ("1/0", 1)]
)
def test_a_fork_that_dies_says_how_and_leaves_the_other_alone(pair, crash, code):
    change, base = pair
    start(change), start(base)
    with pytest.raises(TargetDied) as died:
        change.control(crash)
    assert died.value.returncode == code
    assert base.step()["change"] == "base"
    assert start(change)["change"] == "change"


def test_a_fork_that_hangs_is_over_at_its_time_limit(target):
    with target("hangs", step_limit=SHORT) as hangs, forking([hangs]) as hangs.forks:
        pid = start(hangs)["pid"]
        with pytest.raises(TargetHung):
            hangs.control("time.sleep(600)")
        assert is_gone(pid)


def test_a_scheduler_that_cannot_be_imported_is_not_started(target):
    with target("broken", "1 / 0") as broken, forking([broken]) as broken.forks:
        with pytest.raises(TargetNotStarted) as refused:
            start(broken)
        assert "ZeroDivisionError" in refused.value.stderr_tail


@pytest.mark.parametrize(
    "strike", ["None", "os.kill(os.getppid(), signal.SIGKILL)", "os.kill(os.getppid(), 19)"]
)
def test_what_a_fork_has_left_behind_is_over_when_it_is(pair, strike, monkeypatch):
    monkeypatch.setattr(pipe, "EXIT_PATIENCE", 0.1)
    change, base = pair
    start(base)
    pid = start(change)["pid"]
    left = change.control(f"[{LEAVES}, {strike}][0]")["done"]
    change.close()
    assert is_gone(pid)
    if strike == "None":
        assert is_gone(left)
    assert base.step()["change"] == "base"


def test_the_forks_end_with_their_server(target):
    with target("change") as change:
        with forking([change]) as change.forks:
            pid = start(change)["pid"]
        assert is_gone(pid)


def test_without_a_server_the_target_is_started_as_usual(target, tmp_path, imported):
    with target("change") as change:
        change.forks = tmp_path / "no server"
        assert start(change)["change"] == "change"
    with target("other") as other:
        with forking([other]) as server:
            other.forks = server
        assert start(other)["change"] == "other"
    assert len(imported.read_text().split()) == 2


def test_a_server_with_threads_does_not_fork(target):
    with target("change", THREADED="1") as change, forking([change]) as change.forks:
        with pytest.raises(ConnectionError):
            ForkedProcess(change.forks, {}, PATIENT)
        assert start(change)["change"] == "change"


OPEN = "len(os.listdir('/proc/self/fd'))"


def test_a_server_that_cannot_fork_once_keeps_nothing_open(target):
    opened = []
    for name, more in (("usual", {}), ("fails", {"FAILS": "1"})):
        with target(name, **more) as change, forking([change]) as change.forks:
            if more:
                with pytest.raises(ConnectionError):
                    ForkedProcess(change.forks, {}, PATIENT)
            start(change)
            opened.append(change.control(OPEN)["done"])
    assert opened[0] == opened[1]


def test_targets_with_different_commands_share_no_server(target):
    with target("change") as change, target("base") as base:
        base.command = (*base.command, "else")
        with forking([change, base]) as server:
            assert server is None
