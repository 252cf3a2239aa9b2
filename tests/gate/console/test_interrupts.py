"""A Ctrl-C that something swallows ends a run all the same, with what it has."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from schedproof.gate.console import interrupts
from schedproof.gate.console.option_checks import check_different, check_unicode
from schedproof.gate.console.output import config_line, request_lines
from schedproof.gate.files.disk import write
from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.judging import engines
from schedproof.gate.judging import judge as gate_judge
from schedproof.gate.judging.judge import judge
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config

from ..build import Toy


@pytest.fixture(autouse=True)
def _nothing_pressed(monkeypatch):
    monkeypatch.setattr(interrupts, "_pressed", False)


def test_what_was_pressed_is_raised_again_until_the_process_ends():
    interrupts.check()
    with pytest.raises(KeyboardInterrupt):
        interrupts.press()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_handlers_are_installed_but_where_a_signal_is_ignored(monkeypatch):
    there = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_IGN,
    }
    monkeypatch.setattr(signal, "getsignal", there.get)
    monkeypatch.setattr(signal, "signal", there.__setitem__)
    interrupts.install()
    assert there[signal.SIGINT] is there[signal.SIGTERM] is interrupts.press
    assert there[signal.SIGHUP] is signal.SIG_IGN


@pytest.mark.parametrize("steps", [1, 400])
def test_a_gate_whose_ctrl_c_is_swallowed_is_interrupted_before_the_next_run(steps, gate):
    class Swallows(Toy):
        taken = 0

        def bend(self, step):
            type(self).taken += 1
            if self.taken == steps:
                with suppress(KeyboardInterrupt):
                    interrupts.press()

    verdict = judge(gate(Swallows(), "ALL-R03"))
    assert verdict.interrupted
    assert Swallows.taken < steps + 400


def test_an_error_that_ctrl_c_led_to_is_ctrl_c():
    with pytest.raises(AssertionError), interrupts.prefer_interrupt():
        raise AssertionError
    with suppress(KeyboardInterrupt):
        interrupts.press()
    with pytest.raises(KeyboardInterrupt), interrupts.prefer_interrupt():
        raise AssertionError


def test_a_gate_whose_search_fails_by_ctrl_c_is_interrupted(gate, monkeypatch):
    def fails(*_):
        with suppress(KeyboardInterrupt):
            interrupts.press()
        raise AssertionError

    monkeypatch.setattr(engines, "run_search", fails)
    assert judge(gate(Toy(), "ALL-R03")).interrupted


def test_a_time_limit_ends_a_run_as_ctrl_c_does_and_says_so():
    assert interrupts.why() == "interrupted"
    interrupts.limit(0.01)
    with pytest.raises(KeyboardInterrupt):
        signal.pause()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    assert interrupts.why() == "the time limit of 0.01 s was reached"
    interrupts.no_limit()
    interrupts.check()
    assert interrupts.why() == "interrupted"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_time_limit_that_falls_into_the_report_takes_no_finding_away(gate, monkeypatch):
    faults_of = gate_judge.faults_of

    def slow(*args):
        if signal.getitimer(signal.ITIMER_REAL)[0]:  # the alarm would come here
            interrupts._time_is_over()
        return faults_of(*args)

    monkeypatch.setattr(gate_judge, "faults_of", slow)
    interrupts.limit(60)
    try:
        verdict = judge(gate(Toy(), "ALL-R03"))
    finally:
        interrupts.no_limit()
    assert not verdict.interrupted


def test_the_timer_of_a_caller_is_left_alone(gate):
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        judge(gate(Toy(), "ALL-R03"))
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


SWALLOWED = """
import gc, os, signal, sys
from schedproof.gate.console import interrupts
def strike(*_):
    while interrupts.was_pressed() is False:
        {strike}
class Destroyed:
    __del__ = strike
interrupts.install()
try:
    {swallow}
    signal.pause()
except KeyboardInterrupt:
    print(interrupts.why())
"""


@pytest.mark.parametrize(
    ("strike", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", "interrupted"),
        ("interrupts.limit(0.01); signal.pause()", "the time limit of 0.01 s was reached"),
    ],
)
@pytest.mark.parametrize("swallow", ["gc.callbacks.append(strike); gc.collect()", "Destroyed()"])
def test_what_python_would_swallow_and_print_is_raised_a_moment_later(strike, why, swallow):
    body = SWALLOWED.format(strike=strike, swallow=swallow)
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, check=False, text=True)
    assert (done.stdout, done.stderr, done.returncode) == (f"{why}\n", "", 0)


def test_another_error_of_a_destructor_is_still_printed():
    body = SWALLOWED.format(strike="raise ValueError", swallow="Destroyed(); sys.exit()")
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, check=False, text=True)
    assert "ValueError" in done.stderr


def test_a_run_that_ends_in_time_leaves_no_timer():
    interrupts.limit(60)
    interrupts.no_limit()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_targets_own_keys_are_listed_one_by_one():
    config = full_config("generic", "documented", {"own": {"reserve": 2, "policy": "lifo"}})
    assert config_line("generic", "documented", config).endswith(", reserve 2, policy lifo")


def test_a_value_that_is_not_at_its_default_is_named_in_words():
    config = full_config("spyre", "sound", {"interleave": False})
    assert config_line("spyre", "sound", config).endswith(", interleave off")


def test_a_feature_that_is_written_out_and_off_is_not_named():
    off = {"num_speculative_tokens": 0, "kv_connector": False, "kv_groups": [{"kind": "full"}]}
    usual = full_config("vllm", "documented", {})
    assert config_line("vllm", "documented", usual | off) == config_line(
        "vllm", "documented", usual
    )


def test_a_load_is_told_only_where_there_is_a_connector():
    request = Request(id="r", arrival=0, prompt=(("r", 4),), max_tokens=1, load_deferrals=1)
    for connector, words in ((False, ""), (True, ", the connector defers its answer 1 time")):
        config = full_config("vllm", "documented", {"kv_connector": connector})
        scenario = Scenario(
            system="vllm", revision="documented", config=config, requests=(request,)
        )
        [line] = request_lines(scenario)
        assert line == f"r         arrives before step 0: prompt 4, max_tokens 1{words}"


def test_a_file_appears_whole_and_alone(tmp_path):
    file = tmp_path / "v.json"
    file.write_bytes(b"of an earlier run, and longer")
    write(file, b"new")
    assert file.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [file]


def test_what_a_link_points_at_is_written(tmp_path):
    file, link = tmp_path / "v.json", tmp_path / "latest.json"
    link.symlink_to(file)
    write(link, b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"new")
    reader.join()
    assert read == [b"new"]
    assert pipe.is_fifo()


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileError, match=r"folder: cannot be written to \(Is a directory\)"):
        write(folder, b"new")
    assert [*tmp_path.iterdir()] == [folder]


def test_a_file_of_two_options_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"--json": Path("v"), "--junit": Path("w"), "--sarif": tmp_path / "v"}
    with pytest.raises(InputError, match=r"--sarif: .*v is also the file of --json; valid"):
        check_different(files)


def test_what_keeps_nothing_may_be_named_twice():
    files = {"--json": Path("/dev/null"), "--junit": Path("/dev/null")}
    check_different(files)
    assert Path("/dev/null").is_char_device()


def test_bytes_that_are_no_text_are_refused():
    check_unicode("--out", "é\n::error::")
    with pytest.raises(InputError, match=r"--out: 'a.udcffb' is not UTF-8"):
        check_unicode("--out", "a\udcffb")
