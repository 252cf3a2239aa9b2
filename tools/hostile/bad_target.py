"""A target that behaves until the Nth call of an operation, and then misbehaves in one way.

python bad_target.py MISDEED OPERATION N
"""

# mypy: disable-error-code="func-returns-value, dict-item, return-value"

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from schedproof.model.target import ModelTarget

Reply = dict[str, Any]
STOP, KILL = signal.SIGSTOP, signal.SIGKILL


def say(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def line(reply: Any) -> bytes:
    return json.dumps(reply).encode() + b"\n"


def hang() -> None:
    while True:
        time.sleep(60)


def deaf() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def flood(stream: int, data: bytes, megabytes: int) -> None:
    for _ in range(megabytes):
        try:
            rest = data * (2**20 // len(data))
            while rest:
                rest = rest[os.write(stream, rest) :]
        except OSError:
            os._exit(1)


def daemon(then: Callable[[], None]) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        deaf()
        then()
        os._exit(0)
    os.wait()


def forks(many: int) -> None:
    for _ in range(many):
        if os.fork() == 0:
            hang()


def eat() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (16 << 20))


def nested(depth: int) -> bytes:
    return b'{"ok": true, "step": ' + b"[" * depth + b"]" * depth + b"}\n"


def changed(reply: Reply, **values: Any) -> bytes:
    if "step" in reply:
        return line(reply | {"step": reply["step"] | values})
    return line(reply | values)


def watchdogs() -> list[int]:
    """Return the process ids of the watchdogs among our ancestors (not the gate, not init)."""
    above, process = [], os.getppid()
    while "watchdog.py" in Path(f"/proc/{process}/cmdline").read_text():
        above.append(process)
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
    return above


def strike(number: int, victims: Sequence[int]) -> None:
    for victim in victims:
        os.kill(victim, number)


MARKUP = (
    "\x1b[2J\x1b]0;owned\x07\r::error::owned%0A::set-output name=a::b\n<script>alert(1)</script>"
)
# For each misdeed, the function that the target runs instead of answering. If it returns bytes,
# they are sent as the answer.
MISDEEDS: dict[str, Callable[[Reply], bytes | None]] = {
    "hangs": lambda reply: hang(),
    "hangs and ignores signals": lambda reply: (deaf(), hang())[0],
    "answers late": lambda reply: (time.sleep(0.2), line(reply))[1],
    "answers too late": lambda reply: (time.sleep(1.5), line(reply))[1],
    "answers twice": lambda reply: line(reply) * 2,
    "sends an extra answer": lambda reply: line(reply) + line({"ok": True}),
    "never ends its line": lambda reply: (say(line(reply)[:-1]), hang())[0],
    "sends half a line and exits": lambda reply: (say(line(reply)[:9]), os._exit(0))[0],
    "floods stdout": lambda reply: flood(1, b"x", 4096),
    "floods stdout with lines": lambda reply: flood(1, b"{}\n", 4096),
    "floods stderr": lambda reply: (flood(2, b"oh no\n", 200), line(reply))[1],
    "floods stderr forever": lambda reply: flood(2, b"\x1b[31m", 10**9),
    "escape sequences on stderr": lambda reply: (os.write(2, MARKUP.encode()), os._exit(1))[0],
    "escape sequences in a crash": lambda reply: line(
        {"ok": False, "error": "crashed", "message": MARKUP, "traceback": MARKUP}
    ),
    "escape sequences in a refusal": lambda reply: line(
        {"ok": False, "error": "config", "message": MARKUP}
    ),
    "an unknown error": lambda reply: line({"ok": False, "error": MARKUP}),
    "not UTF-8": lambda reply: b'{"ok": true, "x": "\xff\xfe"}\n',
    "a lone surrogate": lambda reply: b'{"ok": true, "step": {"kind": "\\ud800"}}\n',
    "not JSON": lambda reply: b"Traceback (most recent call last):\n",
    "an empty line": lambda reply: b"\n",
    "deep nesting": lambda reply: nested(100_000),
    "not a number": lambda reply: b'{"ok": true, "step": {"tkv": NaN, "free_blocks": 1e999}}\n',
    "a huge number": lambda reply: changed(reply, free_blocks=10**400, tkv=-1),
    "a duplicate member": lambda reply: b'{"ok": true, "ok": false, "step": {}, "step": {}}\n',
    "schedules an unknown request": lambda reply: changed(
        reply, scheduled={MARKUP: 3}, kind="decode"
    ),
    "fields of the wrong type": lambda reply: changed(
        reply, in_flight="three", events=[{"parked": MARKUP}], emitted_at={"r0": [[-1]]}
    ),
    "observes everything and nothing": lambda reply: line(
        reply | {"observes": ["steps", MARKUP, "blocks"], "name": MARKUP, "version": "\n"}
    ),
    "forks and exits while the child holds the pipes": lambda reply: (forks(1), os._exit(0))[0],
    "forks and continues": lambda reply: (forks(20), line(reply))[1],
    "starts a daemon and continues": lambda reply: (daemon(hang), line(reply))[1],
    "starts a daemon that floods stderr": lambda reply: (
        daemon(lambda: flood(2, b"still here\n", 10**6)),
        line(reply),
    )[1],
    "starts a daemon and exits": lambda reply: (daemon(hang), os._exit(0))[0],
    "eats memory": lambda reply: eat(),
    "exits with 0": lambda reply: os._exit(0),
    "exits with 3": lambda reply: os._exit(3),
    "kills itself": lambda reply: os.kill(os.getpid(), signal.SIGKILL),
    "stops itself": lambda reply: os.kill(os.getpid(), signal.SIGSTOP),
    "a segmentation fault": lambda reply: os.kill(os.getpid(), signal.SIGSEGV),
    "signals its parent": lambda reply: (os.kill(os.getppid(), signal.SIGTERM), line(reply))[1],
    "stops its parent and hangs": lambda reply: (strike(STOP, watchdogs()[:1]), hang())[0],
    "stops its watchdogs and hangs": lambda reply: (strike(STOP, watchdogs()), hang())[0],
    "kills its parent": lambda reply: (strike(KILL, watchdogs()[:1]), line(reply))[1],
    "kills its watchdogs and hangs": lambda reply: (strike(KILL, watchdogs()), hang())[0],
    "signals its group": lambda reply: (os.killpg(0, signal.SIGTERM), line(reply))[1],
    "closes stdout": lambda reply: (os.close(1), hang())[0],
    "closes stdin": lambda reply: (os.close(0), line(reply))[1],
    "removes its folder": lambda reply: (os.rmdir(os.getcwd()), line(reply))[1],
    "writes into its folder": lambda reply: (Path("left.txt").write_text("x"), line(reply))[1],
    "differs from run to run": lambda reply: changed(reply, waiting=[str(random.random())]),
}


def main() -> None:
    misdeed, operation, remaining = sys.argv[1], sys.argv[2], int(sys.argv[3])
    target = ModelTarget()
    while query := sys.stdin.buffer.readline():
        words = json.loads(query)
        op = words.pop("op")
        reply = getattr(target, op)(**words)
        remaining -= op == operation
        answer = line(reply) if remaining or op != operation else MISDEEDS[misdeed](reply)
        if answer is not None:
            say(answer)


if __name__ == "__main__":
    main()
