"""The loop that hosts a target on stdin/stdout, around a toy target in a process of its own."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from schedproof.gate.targets import jsonl

PATIENCE = 30  # seconds

# The folder of jsonl.py goes on the path by itself, as in a release environment.
TOY = f"""
import asyncio, os, sys
sys.path.insert(0, {str(Path(jsonl.__file__).parent)!r})
import jsonl

class Toy:
    def start(self, system, revision, config):
        self.log = [f"{{system}} {{revision}} {{config}}"]
        return {{"ok": True, "name": "toy", "version": "1", "observes": []}}

    def add(self, request):
        print("printed by Python")
        os.write(1, b"written to descriptor 1\\n")
        os.system("echo printed by a child")
        self.log.append(request["id"])
        return {{"ok": True}}

    def abort(self, id, inside=False):
        self.log.append(f"abort {{id}} {{inside}}")
        return {{"ok": True}}

    def step(self):
        if "crash" in self.log:
            raise ValueError("no good")
        if "exit" in self.log:
            sys.exit(3)
        if "cancel" in self.log:
            raise asyncio.CancelledError
        if "unprintable" in self.log:
            return {{"ok": True, "step": object()}}
        if "interrupt" in self.log:
            raise KeyboardInterrupt
        return {{"ok": True, "step": {{"log": self.log}}}}

    def stop(self):
        del self.log
        return {{"ok": True}}

jsonl.serve(Toy())
print("printed after the loop")
os.write(1, b"written after the loop")
"""

START = {"op": "start", "system": "s", "revision": "r", "config": {}}
STEP = {"op": "step"}


def add(request):
    return {"op": "add", "request": {"id": request}}


def run(stdin):
    return subprocess.run(
        [sys.executable, "-c", TOY], input=stdin, capture_output=True, timeout=PATIENCE, check=False
    )


def ask(*messages):
    """The replies to these messages; bytes are sent as they are, without a line end."""
    lines = [m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages]
    done = run(b"".join(lines))
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def toy():
    with subprocess.Popen(
        [sys.executable, "-c", TOY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_each_request_gets_one_reply_in_order():
    replies = ask(START, add("r0"), {"op": "abort", "id": "r0"}, STEP, {"op": "stop"})
    assert [reply["ok"] for reply in replies] == [True] * 5
    assert replies[0]["name"] == "toy"
    assert replies[3]["step"]["log"] == ["s r {}", "r0", "abort r0 False"]


def test_a_reply_comes_before_the_next_request_is_sent():
    with toy() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in (START, STEP, STEP):
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["ok"]


def test_inside_reaches_the_target():
    replies = ask(START, {"op": "abort", "id": "r0", "inside": True}, STEP)
    assert replies[-1]["step"]["log"][-1] == "abort r0 True"


def test_a_crash_is_answered_with_its_traceback_and_the_loop_goes_on():
    crash, after = ask(START, add("crash"), STEP, START)[2:]
    assert (crash["ok"], crash["error"]) == (False, "crashed")
    assert crash["message"] == "ValueError: no good"
    assert "Traceback" in crash["traceback"]
    assert "in step" in crash["traceback"]
    assert after["ok"]


def test_an_exit_of_the_target_is_a_crash_and_not_the_end():
    crash, after = ask(START, add("exit"), STEP, START)[2:]
    assert crash["error"] == "crashed"
    assert crash["message"] == "SystemExit: 3"
    assert after["ok"]


def test_an_exception_that_is_no_subclass_of_exception_is_a_crash():
    crash, after = ask(START, add("cancel"), STEP, START)[2:]
    assert crash["error"] == "crashed"
    assert crash["message"].startswith("CancelledError: ")
    assert "in step" in crash["traceback"]
    assert after["ok"]


def test_a_reply_that_is_not_json_is_a_fault_of_the_adapter():
    fault, after = ask(START, add("unprintable"), STEP, START)[2:]
    assert fault["error"] == "protocol"
    assert fault["message"] == (
        "the reply cannot be written as JSON (TypeError: Object of type object is not JSON "
        "serializable); valid: dict, list, str, int, float, bool and None"
    )
    assert after["ok"]


def test_start_can_be_sent_again_with_and_without_stop():
    replies = ask(START, add("r0"), START, STEP, {"op": "stop"}, START, STEP)
    assert [reply["ok"] for reply in replies] == [True] * 7
    assert replies[3]["step"]["log"] == ["s r {}"]
    assert replies[6]["step"]["log"] == ["s r {}"]


@pytest.mark.parametrize(
    "line",
    [b"garbage\n", b"\n", b'{"op": "step"\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n"],
    ids=["words", "empty", "cut", "bytes", "deep"],
)
def test_a_line_that_is_not_json_is_answered_and_the_loop_goes_on(line):
    start, garbage, after = ask(START, line, STEP)
    assert start["ok"]
    assert garbage["error"] == "protocol"
    assert "JSON" in garbage["message"]
    assert len(garbage["message"]) < 1000
    assert after["ok"]


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"op": "fly"}, ["'fly'", "start, add, abort, control, step, stop"]),
        ({"op": None}, ["None", "start, add, abort, control, step, stop"]),
        ({"operation": "step"}, ["'op'", "start, add, abort, control, step, stop"]),
        ({"op": "add"}, ["'request'", "'add'", "op, request"]),
        ({"op": "start", "system": "s"}, ["'revision'", "op, system, revision, config"]),
        ({"op": "abort", "id": "r0", "insde": True}, ["'insde'", "op, id, inside"]),
        ({"op": "step", "count": 2}, ["'count'", "'step'"]),
        ({"op": "abort", "id": 7}, ["'id'", "7", "a string"]),
        ({"op": "abort", "id": "r0", "inside": 1}, ["'inside'", "1", "true or false"]),
        ({"op": "add", "request": ["r0"]}, ["'request'", "an object"]),
        ({**START, "config": None}, ["'config'", "None", "an object"]),
        (b"[1]\n", ["[1]", "object"]),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong_and_what_is_valid(message, parts):
    start, wrong, after = ask(START, message, STEP)
    assert start["ok"]
    assert (wrong["ok"], wrong["error"]) == (False, "protocol")
    for part in parts:
        assert part in wrong["message"]
    assert after["step"]["log"] == ["s r {}"]  # the target never saw it


def test_a_target_may_refuse_a_request_as_misunderstood():
    class Strict:
        def start(self, system, revision, config):
            raise jsonl.ProtocolError(f"{system} {revision} {config}")

        add = abort = step = stop = None

    reply = jsonl.answer(Strict(), json.dumps(START).encode())  # type: ignore[arg-type]
    assert reply == {"ok": False, "error": "protocol", "message": "s r {}"}


def test_nothing_that_anybody_prints_reaches_the_replies():
    done = run(b"".join(json.dumps(m).encode() + b"\n" for m in (START, add("r0"), STEP)))
    assert [json.loads(line)["ok"] for line in done.stdout.splitlines()] == [True] * 3
    for noise in (
        b"printed by Python",
        b"written to descriptor 1",
        b"printed by a child",
        b"printed after the loop",
        b"written after the loop",
    ):
        assert noise in done.stderr


def test_the_end_of_stdin_ends_the_loop_quietly():
    done = run(b"")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"Traceback" not in done.stderr


def test_a_last_line_without_line_end_is_answered():
    assert ask(START, b'{"op": "step"}')[-1]["ok"]


def test_a_reader_that_goes_away_ends_the_loop_quietly():
    with toy() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write((json.dumps(START) + "\n").encode() * 3)
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert b"Traceback" not in process.stderr.read()


def test_a_keyboard_interrupt_that_the_target_raises_is_a_crash():
    crash, after = ask(START, add("interrupt"), STEP, START)[2:]
    assert (crash["error"], crash["message"][:18]) == ("crashed", "KeyboardInterrupt:")
    assert after["ok"]


def test_ctrl_c_ends_the_loop_quietly():
    with toy() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(START).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert b"Traceback" not in process.stderr.read()


def test_an_exception_without_words_is_told_by_the_line_that_raised_it():
    try:
        assert START["op"] == "stop"
    except AssertionError as error:
        plain = AssertionError().with_traceback(error.__traceback__)
    assert jsonl.crash_reply(plain)["message"] == 'AssertionError: assert START["op"] == "stop"'
    assert jsonl.crash_reply(KeyError())["message"] == "KeyError: "


class WithoutWordsError(Exception):
    def __str__(self):
        raise ValueError


def test_an_exception_that_cannot_be_printed_is_a_crash():
    reply = jsonl.crash_reply(WithoutWordsError())
    assert reply["message"] == "WithoutWordsError: str() failed: ValueError"


def test_a_reply_that_cannot_be_read_is_a_fault_of_the_adapter():
    class Unreadable(dict):
        def items(self):
            raise KeyError("items")

    reply = json.loads(jsonl._encode(Unreadable(ok=True)))
    assert reply["error"] == "protocol"
    assert reply["message"].startswith("the reply cannot be written as JSON (KeyError: 'items');")


def test_half_a_surrogate_in_what_a_target_raises_is_still_a_crash():
    reply = jsonl.crash_reply(ValueError("\ud800 and more"))
    assert json.loads(json.dumps(reply).encode())["message"] == "ValueError: \\ud800 and more"
    msgspec.json.decode(json.dumps(reply))
