"""A target behind a pipe: every way to misbehave ends in one fault, and in no process."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from schedproof.gate.targets import pipe
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.model.faults import (
    TargetBroken,
    TargetDied,
    TargetFault,
    TargetHung,
    TargetNotStarted,
    TargetTooLarge,
)
from schedproof.model.systems import full_config

PRELUDE = """
import json, os, signal, sys, time
def ask(): return json.loads(sys.stdin.buffer.readline() or sys.exit())
def say(text): os.write(1, text.encode())
def reply(**fields): say(json.dumps({"ok": True} | fields) + "\\n")
def hang():
    while True: time.sleep(60)
def press(): os.kill(int(os.environ["DRIVER"]), signal.SIGINT)
def deaf(): signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
ECHO = "while True: reply(asked=ask(), pid=os.getpid())"
PATIENT = 20.0  # seconds; for what must be answered, however busy the machine
SHORT = 0.2  # seconds; for what must not be answered


def toy(body):
    return [sys.executable, "-S", "-c", PRELUDE + body]


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(pipe, "EXIT_PATIENCE", 0.1)


def started(body, step_limit=PATIENT):
    target = PipeTarget(toy(body), step_limit=step_limit)
    target.start("spyre", "documented", {})
    return target


def is_gone(pid):
    """Whether the process ends; one that no request reaps after us (a zombie) has ended too."""
    deadline = time.monotonic() + PATIENT
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat")
            if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.005)
    return False


@pytest.fixture
def echo():
    with PipeTarget(toy(ECHO), step_limit=PATIENT) as target:
        target.start("spyre", "documented", {"block_size": 64})
        yield target


def test_each_operation_is_asked_in_the_words_of_the_protocol(echo):
    config = {"block_size": 64, "num_blocks": None}
    request = {"id": "r0", "prompt": [["r0", 40]], "max_tokens": 3}
    assert echo.start("spyre", "2.1.2", config)["asked"] == {
        "op": "start",
        "system": "spyre",
        "revision": "2.1.2",
        "config": config,
    }
    assert echo.add(request)["asked"] == {"op": "add", "request": request}
    assert echo.abort("r0")["asked"] == {"op": "abort", "id": "r0"}
    assert echo.abort("r0", inside=True)["asked"] == {"op": "abort", "id": "r0", "inside": True}
    assert echo.step()["asked"] == {"op": "step"}
    assert echo.stop()["asked"] == {"op": "stop"}


def test_a_refusal_is_a_reply_and_not_a_fault():
    refusal = 'ask(); say(\'{"ok": false, "error": "config", "message": "no"}\\n\'); ask()'
    with PipeTarget(toy(refusal)) as target:
        assert target.start("spyre", "x", {}) == {"ok": False, "error": "config", "message": "no"}


def test_start_begins_anew_in_the_same_process(echo):
    first = echo.step()["pid"]
    echo.stop()
    assert echo.start("spyre", "documented", {})["pid"] == first


def test_a_slow_first_start_may_take_longer_than_a_step():
    with PipeTarget(toy("time.sleep(0.4); ask(); reply()"), step_limit=0.1) as target:
        assert target.start("spyre", "documented", {}) == {"ok": True}


def test_a_reply_of_a_megabyte_in_small_pieces_arrives_whole():
    body = """
ask(); reply(); ask()
text = json.dumps({"ok": True, "step": "x" * 1000000}) + "\\n"
for at in range(0, len(text), 10007): say(text[at:at + 10007])
ask()
"""
    with started(body) as target:
        assert len(target.step()["step"]) == 1_000_000


def test_a_question_longer_than_the_pipe_holds_arrives_whole(echo):
    request = {"id": "r0", "prompt": [["x" * 1_000_000, 1]]}
    assert echo.add(request)["asked"]["request"] == request


def test_env_is_the_whole_environment_of_the_target():
    body = "ask(); reply(env=sorted(os.environ)); ask()"
    env = {"ONLY": "this", "LC_ALL": "C.UTF-8"}
    with PipeTarget(toy(body), env=env) as target:
        seen = set(target.start("spyre", "documented", {})["env"])
    assert "ONLY" in seen
    assert "PATH" not in seen


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("hang()", id="silence"),
        pytest.param("say('{\"ok\": tr'); hang()", id="half a line"),
        pytest.param("\nwhile True: say(' '); time.sleep(0.01)", id="a dribble"),
        pytest.param("deaf(); hang()", id="deaf to SIGTERM"),
    ],
)
def test_no_full_reply_within_the_limit_is_a_hang_and_the_process_is_gone(answer):
    body = f"ask(); reply(pid=os.getpid()); ask(); {answer}"
    with PipeTarget(toy(body), step_limit=SHORT) as target:
        pid = target.start("spyre", "documented", {})["pid"]
        with pytest.raises(TargetHung) as caught:
            target.step()
        assert (caught.value.op, caught.value.seconds) == ("step", SHORT)
        assert is_gone(pid)
        assert str(caught.value) == "target hung: no reply to 'step' within 0.2 s"


def test_a_target_that_does_not_read_is_a_hang():
    with started("ask(); reply(); hang()", step_limit=SHORT) as target, pytest.raises(TargetHung):
        target.add({"id": "r0", "prompt": [["x" * 1_000_000, 1]]})


def test_a_hang_in_the_first_start_is_held_to_the_start_limit():
    target = PipeTarget(toy("hang()"), start_limit=SHORT)
    with pytest.raises(TargetHung) as caught:
        target.start("spyre", "documented", {})
    assert (caught.value.op, caught.value.seconds) == ("start", SHORT)


@pytest.mark.slow
def test_after_a_refused_start_the_next_may_still_pay_for_imports(monkeypatch):
    monkeypatch.setattr(pipe, "RESTART_LIMIT", SHORT)
    body = "ask(); reply(ok=False, error='config'); ask(); time.sleep(3); reply(); ask()"
    target = PipeTarget(toy(body), start_limit=PATIENT, step_limit=SHORT)
    assert target.start("spyre", "documented", {})["ok"] is False
    assert target.start("spyre", "documented", {})["ok"] is True
    target.close()


def test_a_later_start_gets_the_restart_limit(monkeypatch):
    monkeypatch.setattr(pipe, "RESTART_LIMIT", SHORT)
    target = started("ask(); reply(); hang()", step_limit=0.1)
    with pytest.raises(TargetHung) as caught:
        target.start("spyre", "documented", {})
    assert (caught.value.op, caught.value.seconds) == ("start", SHORT)


def test_after_a_hang_start_spawns_a_new_process():
    body = "ask(); reply(pid=os.getpid()); ask(); hang()"
    with PipeTarget(toy(body), step_limit=SHORT) as target:
        first = target.start("spyre", "documented", {})["pid"]
        with pytest.raises(TargetHung):
            target.step()
        assert target.start("spyre", "documented", {})["pid"] != first


@pytest.mark.parametrize(
    ("ending", "returncode", "says"),
    [
        ("sys.exit(3)", 3, "exit code 3"),
        ("sys.exit(0)", 0, "exit code 0"),
        ("say('{\"ok\"'); sys.exit(1)", 1, "exit code 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "signal SIGKILL"),
    ],
)
def test_a_process_that_ends_in_a_step_died_with_its_last_words(ending, returncode, says):
    body = f"ask(); reply(); ask(); os.write(2, b'assert failed\\n\\n'); {ending}"
    with started(body) as target, pytest.raises(TargetDied) as caught:
        target.step()
    assert (caught.value.op, caught.value.returncode) == ("step", returncode)
    assert caught.value.stderr_tail == target.stderr_tail == "assert failed\n\n"
    assert str(caught.value) == (
        f"target died: it ended with {says} before it answered 'step'; its last words: "
        "assert failed"
    )


def test_a_process_that_ended_between_two_operations_died():
    with started("ask(); reply(pid=os.getpid())") as target, pytest.raises(TargetDied) as caught:
        target.step()
    assert caught.value.returncode == 0


def test_a_target_that_leaves_at_stop_is_told_to_stay():
    with started("ask(); reply(); ask(); reply()") as target:
        target.stop()
        with pytest.raises(TargetDied, match="it must keep running after a stop"):
            target.start("spyre", "documented", {})


def test_a_death_is_seen_though_a_grandchild_holds_the_pipe():
    body = """
ask(); reply(); ask()
if os.fork(): os._exit(7)
hang()
"""
    with started(body) as target, pytest.raises(TargetDied) as caught:
        target.step()
    assert caught.value.returncode == 7


def test_a_missing_executable_is_named(tmp_path):
    command = [str(tmp_path / "no-such-scheduler"), "--fast"]
    with pytest.raises(TargetNotStarted, match=r"no-such-scheduler': No such file") as caught:
        PipeTarget(command).start("spyre", "documented", {})
    assert list(caught.value.command) == command


def test_a_file_that_is_not_executable_is_not_started(tmp_path):
    (tmp_path / "scheduler").write_text("#!/bin/sh\n")
    with pytest.raises(TargetNotStarted, match="Permission denied"):
        PipeTarget([str(tmp_path / "scheduler")]).start("spyre", "documented", {})


def test_a_process_that_ends_before_its_first_answer_was_not_started():
    body = "os.write(2, b'ImportError: no module\\n'); sys.exit(1)"
    with pytest.raises(TargetNotStarted) as caught:
        PipeTarget(toy(body)).start("spyre", "documented", {})
    assert caught.value.why == "it ended with exit code 1 before it answered the first start"
    assert str(caught.value).endswith("its last words: ImportError: no module")


def test_an_operation_before_start_is_refused():
    with pytest.raises(TargetNotStarted, match="'step' came before 'start'"):
        PipeTarget(toy(ECHO)).step()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Loading model ...", "not JSON"),
        ("", "not JSON"),
        ("\\xff\\xfe", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "not an object"),
        ("{}", "not an object with"),
        ('{"step": {}}', "not an object with"),
        ('{"ok": 1}', "not an object with"),
        ('{"ok": true, "ok": false}', "not JSON: key 'ok' is given twice in one object"),
        ('{"ok": true, "step": {"a": {"b": 1, "b": 2}}}', "not JSON: key 'b' is given twice"),
        ('{"ok": true, "x": [' + '{"a":' * 800 + "1" + "}" * 800 + "]}", "not JSON: "),
    ],
)
def test_a_line_that_is_no_reply_is_a_broken_target(line, why):
    body = f"ask(); reply(); ask(); os.write(1, b'''{line}\\n'''); hang()"
    if len(line) > 1000:
        body = f"ask(); reply(); ask(); say('[' * {len(line)} + '\\n'); hang()"
    with started(body) as target, pytest.raises(TargetBroken, match=why) as caught:
        target.step()
    assert caught.value.op == "step"
    assert len(caught.value.line_excerpt) <= 200
    assert "\n" not in str(caught.value)


def test_a_flood_without_a_newline_is_cut_at_the_longest_line(monkeypatch):
    monkeypatch.setattr(pipe, "LONGEST_LINE", 1_000_000)
    body = "ask(); reply(); ask()\nwhile True: say('x' * 65536)"
    with started(body) as target, pytest.raises(TargetBroken, match="longer than 16 MiB"):
        target.step()


def test_output_beyond_the_reply_is_a_broken_target():
    body = "ask(); reply(); ask(); say('{\"ok\": true}\\nby the way\\n'); hang()"
    with (
        started(body) as target,
        pytest.raises(TargetBroken, match=r"more than one reply: .*by the way"),
    ):
        target.step()


def test_output_without_a_question_is_a_broken_target():
    with started("ask(); reply(); time.sleep(0.05); say('by the way\\n'); hang()") as target:
        time.sleep(0.3)
        with pytest.raises(TargetBroken, match="by the way"):
            target.step()  # were the machine too slow for the pause: as an unreadable reply


def test_a_target_that_closes_its_input_and_stays_is_broken():
    target = started("ask(); reply(); ask(); os.close(0); reply(step={}); hang()")
    target.step()
    with pytest.raises(TargetBroken, match="it closed a pipe but kept running"):
        target.step()


def test_a_target_that_closes_its_output_and_stays_is_broken():
    target = started("ask(); reply(); ask(); os.close(1); hang()")
    with pytest.raises(TargetBroken, match="it closed a pipe"):
        target.step()


def test_after_a_broken_reply_only_start_goes_on():
    with started("ask(); reply(); ask(); say('?\\n'); hang()") as target:
        with pytest.raises(TargetBroken):
            target.step()
        with pytest.raises(TargetNotStarted):
            target.step()
        assert target.start("spyre", "documented", {}) == {"ok": True}


def test_a_flood_on_stderr_does_not_block_and_its_end_is_kept():
    body = """
ask(); reply(); ask()
for n in range(20000): os.write(2, b"%d: a line of some length that no request reads\\n" % n)
os.write(2, b"\\xff the end"); sys.exit(1)
"""
    with started(body) as target, pytest.raises(TargetDied):
        target.step()
    assert target.stderr_tail.endswith("no request reads\n\ufffd the end")
    assert len(target.stderr_tail) == pipe.STDERR_KEPT


def test_stderr_is_that_since_the_last_start():
    body = """
ask(); os.write(2, b"first"); reply()
ask(); os.write(2, b"second"); sys.exit(1)
"""
    with started(body) as target:
        deadline = time.monotonic() + PATIENT
        while target.stderr_tail != "first" and time.monotonic() < deadline:
            time.sleep(0.005)
        with pytest.raises(TargetDied):
            target.start("spyre", "documented", {})
        assert target.stderr_tail == "second"


def test_close_ends_a_process_and_may_be_repeated(echo):
    pid = echo.step()["pid"]
    echo.close()
    echo.close()
    assert is_gone(pid)


def test_a_target_may_be_closed_while_another_thread_waits_for_its_answer():
    target, faults = started("ask(); reply(); ask(); hang()"), list[TargetFault]()

    def step():
        try:
            target.step()
        except TargetFault as fault:
            faults.append(fault)

    waits = threading.Thread(target=step)
    waits.start()
    time.sleep(SHORT)
    target.close()
    waits.join(PATIENT)
    assert [type(fault) for fault in faults] == [TargetDied]


def test_close_ends_a_process_that_ignores_sigterm():
    target = PipeTarget(toy("deaf(); ask(); reply(pid=os.getpid()); hang()"))
    pid = target.start("spyre", "documented", {})["pid"]
    target.close()
    assert is_gone(pid)


@pytest.mark.parametrize("end", ["ask()", "hang()", "sys.exit(0)"])
def test_close_ends_a_grandchild_that_ignores_sigterm(end):
    body = f"""
deaf()
ask(); child = os.fork()
if child == 0: hang()
reply(pid=child); {end}
"""
    target = PipeTarget(toy(body))
    pid = target.start("spyre", "documented", {})["pid"]
    target.close()
    assert is_gone(pid)


@pytest.mark.slow
def test_a_forgotten_target_ends_its_process():
    target = PipeTarget(toy(ECHO), step_limit=PATIENT)
    pid = target.start("spyre", "documented", {})["pid"]
    del target
    gc.collect()
    assert is_gone(pid)


DRIVER = """
import os, sys
from schedproof.gate.targets import pipe
os.environ["DRIVER"] = str(os.getpid())
pipe.EXIT_PATIENCE = 0.1
target = pipe.PipeTarget([sys.executable, "-S", "-c", sys.argv[1]])
print(target.start("spyre", "documented", {})["pid"], flush=True)
"""


def test_ctrl_c_in_the_middle_of_a_read_leaves_no_process():
    # The target itself presses Ctrl-C, when the driver surely waits for it.
    body = "deaf(); ask(); reply(pid=os.getpid()); ask(); press(); hang()"
    driver = [sys.executable, "-c", DRIVER + "target.step()", PRELUDE + body]
    done = subprocess.run(driver, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert is_gone(int(done.stdout))


def test_the_end_of_the_interpreter_leaves_no_process():
    body = "deaf(); ask(); reply(pid=os.getpid()); hang()"
    driver = [sys.executable, "-c", DRIVER, PRELUDE + body]
    done = subprocess.run(driver, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert is_gone(int(done.stdout))


DAEMON = """
ask(); deaf()
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.write(write, str(os.getpid()).encode())
    hang()
os.wait()
reply(pid=int(os.read(read, 20)))
"""
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


@NEEDS_PROC
@pytest.mark.parametrize("then", ["ask(); sys.exit()", "hang()"], ids=["it ends", "it hangs"])
def test_a_daemon_of_the_target_ends_with_it(then):
    with PipeTarget(toy(DAEMON + then)) as target:
        daemon = target.start("spyre", "documented", {})["pid"]
    assert is_gone(daemon)


@NEEDS_PROC
@pytest.mark.parametrize("body", ["ask(); deaf(); reply(pid=os.getpid())\n", DAEMON])
def test_nothing_of_a_target_outlives_a_driver_that_is_killed(body):
    die = "\nimport signal\nos.kill(os.getpid(), signal.SIGKILL)"
    driver = [sys.executable, "-c", DRIVER + die, PRELUDE + body + "hang()"]
    done = subprocess.run(driver, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert is_gone(int(done.stdout))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_ours_does_not_end_the_target(echo):
    if (child := os.fork()) == 0:
        echo.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert echo.step()["ok"]


GREEDY = """
reply(asked=ask())
eaten = []
while True:
    ask()
    eaten.append(bytearray(8 << 20))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read sizes from")
@pytest.mark.parametrize(
    "answer",
    ["reply()", "eaten.append(bytearray(64 << 20)); hang()"],
    ids=["while it answers", "in one silent step"],
)
def test_a_target_that_eats_memory_is_killed_and_said_to(answer, monkeypatch):
    monkeypatch.setattr(pipe, "LOOK_AROUND", 0.01)
    target = PipeTarget(toy(GREEDY + "    " + answer), step_limit=PATIENT, memory_limit=64)
    target.start("spyre", "documented", {})
    pid = target._child._process.pid  # type: ignore[union-attr]

    def many_steps():
        for _ in range(40):
            target.step()

    with pytest.raises(TargetTooLarge, match="the limit is 64") as found:
        many_steps()
    assert 64 < found.value.used < 400
    assert is_gone(pid)


@pytest.mark.parametrize(
    "fault",
    [
        TargetHung("step", 10.0),
        TargetDied("step", -11, "Segmentation fault\n"),
        TargetTooLarge("step", 9000, 8192),
        TargetBroken("add", "the reply is not JSON", "hello"),
        TargetNotStarted(("scheduler",), "No such file or directory", ""),
    ],
)
def test_a_fault_is_one_line_and_survives_pickling(fault):
    assert "\n" not in str(fault)
    copy = pickle.loads(pickle.dumps(fault))
    assert str(copy) == str(fault)
    assert vars(copy) == vars(fault)


SEGFAULTS = """
import ctypes
from schedproof.gate.targets.jsonl import serve
from schedproof.model.target import ModelTarget

class Target(ModelTarget):
    def step(self):
        self.dereference()

    def dereference(self):
        ctypes.string_at(0)

serve(Target())
"""


def test_a_python_target_that_gets_a_fatal_signal_shows_where():
    with PipeTarget([sys.executable, "-c", SEGFAULTS]) as target:
        target.start("spyre", "sound", full_config("spyre", "sound", {}))
        with pytest.raises(TargetDied, match=r"SIGSEGV .*: Fatal Python error: Segm") as died:
            target.step()
    frames = [line.rpartition(" in ")[2] for line in died.value.stderr_tail.splitlines()]
    assert frames[-2:] == ["dereference", "step"]
