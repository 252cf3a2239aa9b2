"""`schedproof demo`: every scene runs, whatever the folder says, and says what its code means."""

import signal
import subprocess
import sys

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile

from ...command_line import runner


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PROFILES, "quick", Profile(10, 20, 20, corpus_steps=2_000))
    return runner(monkeypatch, capfd)


@pytest.mark.slow
def test_each_scene_runs_in_a_project_of_another_system(run, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.schedproof]\ntarget = "mine:Target"\nsystem = "nano_vllm"\nexclude = ["NAN-R07"]\n'
    )
    result = run("demo")
    assert (result.code, result.err) == (0, "")
    codes = [line.split(":")[0] for line in result.out.splitlines() if line.startswith("exit code")]
    assert codes == [f"exit code {code}" for code in (1, 1, 0, 0, 0, 1)]
    assert (tmp_path / "schedproof-demo" / "late-arrivals.html").stat().st_size > 10_000
    assert [*(tmp_path / "schedproof-demo").glob("SPY-R07-*.json")]


def test_a_place_that_cannot_be_written_to_is_said_first(run, tmp_path):
    (tmp_path / "there").write_text("")
    result = run("demo", "--out", "there")
    assert (result.code, result.out) == (2, "")
    assert "--out: there: there is not a folder" in result.err


@pytest.mark.slow
def test_one_press_of_ctrl_c_ends_it(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "schedproof", "demo"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("target "):
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out.count("$ schedproof") <= 1
    assert "begin with your own scheduler" not in out
