"""A target behind a pipe: a process that answers JSON Lines, held to time limits.

One line out, one line back. Whatever goes wrong, the process and all that it has started are
gone before the fault is raised, since a process that is out of step with its questions cannot
be asked again; the next `start` spawns a new one.
"""

import math
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, cast

import msgspec

from ...model.faults import (
    TargetBroken,
    TargetDied,
    TargetHung,
    TargetNotStarted,
    TargetTooLarge,
    ending,
    excerpt,
)

LONGEST_LINE = 16 * 1024 * 1024  # bytes; a longer reply is a flood
STDERR_KEPT = 8 * 1024  # bytes
RESTART_LIMIT = 30.0  # seconds; the least that a `start` gets in a process that is up
EXIT_PATIENCE = 0.5  # seconds for a process to end by itself, and again after SIGTERM
LOOK_AROUND = 0.25  # seconds between two looks at a silent process: is it there, and how large?
MEMORY_LIMIT, LEAST_MEMORY = 8192, 64  # MiB
LOOK_EVERY = 16  # answers, for a process that is never silent
PAGE = os.sysconf("SC_PAGE_SIZE")

Reply = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class PipeTarget:
    """A scheduler under test in a process of its own, started by the first `start`.

    Every operation returns the reply as received; its "ok" may well be false. Every operation
    raises `TargetHung`, `TargetDied`, `TargetTooLarge`, `TargetBroken` or `TargetNotStarted`. Not
    for use by two threads at once.

    The process runs in `folder`, ours by default.

    `start_limit` (seconds) is for the first `start` that succeeds in a new process, which pays
    for imports (a refusal may come before them); later ones get `step_limit` or 30 s, the
    greater; every other operation gets `step_limit`. `memory_limit` (MiB resident) is for the
    process itself, where the system tells (Linux).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        start_limit: float = 120.0,
        step_limit: float = 10.0,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        if not command:
            raise ValueError("the command of a target has at least one word")
        self.command = tuple(command)
        self._env = env
        self._folder = folder
        self._start_limit = start_limit
        self._step_limit = step_limit
        self._memory_limit = memory_limit
        self._child: _Child | None = None
        self._stderr = _Tail()
        self._has_answered = False
        self._has_started = False

    @property
    def stderr_tail(self) -> str:
        """The last 8 KiB that the process wrote to stderr since the last `start`."""
        return self._stderr.text()

    @property
    def process_id(self) -> int | None:
        """Of the process, where there is one."""
        return None if self._child is None else self._child.process_id

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Begins anew, in the process that is there or else in a new one."""
        self._stderr.clear()
        if self._child is None:
            self._child = self._spawn()
            self._has_started = False
        limit = max(self._step_limit, RESTART_LIMIT) if self._has_started else self._start_limit
        question = {"op": "start", "system": system, "revision": revision, "config": config}
        reply = self._ask(question, limit)
        self._has_started |= isinstance(reply, dict) and reply.get("ok") is True
        return reply

    def add(self, request: Mapping[str, Any]) -> Reply:
        """Hands over a request; a refusal is an answer."""
        return self._ask({"op": "add", "request": request}, self._step_limit)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002 (the protocol's word)
        """Aborts a request now, or inside the next step, after its scheduling decision."""
        when = {"inside": True} if inside else {}
        return self._ask({"op": "abort", "id": id, **when}, self._step_limit)

    def step(self) -> Reply:
        """One scheduling decision and its completion."""
        return self._ask({"op": "step"}, self._step_limit)

    def stop(self) -> Reply:
        """Ends the run; the process stays and may be started again."""
        return self._ask({"op": "stop"}, self._step_limit)

    def close(self) -> None:
        """Ends the process and all that it has started; asks nicely first. May be repeated."""
        self._end(nicely=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self) -> "_Child":
        self._stderr = _Tail()
        try:
            child = _Child(self.command, self._env, self._folder, self._stderr)
            child.memory_limit = self._memory_limit
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise TargetNotStarted(self.command, why, "") from None
        # Also ends the process when this object is forgotten and when the interpreter exits.
        self._forget = weakref.finalize(self, child.end, nicely=True)
        return child

    def _ask(self, question: Mapping[str, Any], limit: float) -> Reply:
        op, line, child = question["op"], _encode(question) + b"\n", self._child
        if child is None:
            raise TargetNotStarted(self.command, f"{op!r} came before 'start'", self.stderr_tail)
        try:
            reply = _reply(op, child.exchange(op, line, limit))
        except EOFError:
            returncode = child.returncode_soon()
            self._end()
            if returncode is None:
                raise TargetBroken(op, "it closed its output and stayed", "") from None
            if not self._has_answered:
                why = f"it ended with {ending(returncode)} before it answered the first start"
                raise TargetNotStarted(self.command, why, self.stderr_tail) from None
            raise TargetDied(op, returncode, self.stderr_tail) from None
        except BaseException:
            self._end()
            raise
        self._has_answered = True
        return reply

    def _end(self, *, nicely: bool = False) -> None:
        if self._child is not None:
            self._child.end(nicely=nicely)
            self._forget.detach()
            self._child = None


class _Child:
    """The process, the group that it leads, and the three pipes to it; `memory_limit` in MiB."""

    memory_limit = MEMORY_LIMIT

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None,
        folder: Path | None,
        stderr: "_Tail",
    ) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, 0, None, pipe, pipe, pipe, cwd=folder, env=env, start_new_session=True
        )
        self._stdin = cast(IO[bytes], self._process.stdin)
        self._stdout = cast(IO[bytes], self._process.stdout)
        self._in, self._out = self._stdin.fileno(), self._stdout.fileno()
        self._owner = os.getpid()
        self._asked = 0
        # A target that does not read must not block us for longer than its time limit.
        os.set_blocking(self._in, False)
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(self._in, select.POLLOUT)
        self._readable.register(self._out, select.POLLIN)
        self._drain = threading.Thread(
            target=stderr.drain, args=(self._process.stderr,), name="stderr of target", daemon=True
        )
        self._drain.start()
        self._ended = False

    @property
    def process_id(self) -> int:
        """Of the leader of the group."""
        return self._process.pid

    def exchange(self, op: str, question: bytes, limit: float) -> bytes:
        """The one line that answers; raises TargetHung, TargetBroken, EOFError if it is gone."""
        self._op, self._limit, self._deadline = op, limit, time.monotonic() + limit
        self._asked += 1
        if self._asked % LOOK_EVERY == 0:
            self._check_memory()
        if self._readable.poll(0) and (early := os.read(self._out, 1 << 16)):
            raise TargetBroken(op, "there was output without a question", excerpt(early))
        self._write(question)
        return self._read()

    def _write(self, question: bytes) -> None:
        rest = memoryview(question)
        while rest:
            try:
                rest = rest[os.write(self._in, rest) :]
            except BlockingIOError:
                self._wait(self._writable)
            except BrokenPipeError:
                raise EOFError from None

    def _read(self) -> bytes:
        received = bytearray()
        while True:
            self._wait(self._readable)
            if not (data := os.read(self._out, 1 << 16)):
                raise EOFError
            received += data
            if len(received) > LONGEST_LINE:
                raise TargetBroken(self._op, "a line is longer than 16 MiB", excerpt(received))
            if b"\n" in data:
                line, _, surplus = received.partition(b"\n")
                if surplus:
                    raise TargetBroken(self._op, "there was more than one reply", excerpt(surplus))
                return bytes(line)

    def _wait(self, ready: select.poll) -> None:
        """Until there is something to read or room to write."""
        while (left := self._deadline - time.monotonic()) > 0:
            if ready.poll(math.ceil(min(left, LOOK_AROUND) * 1000)):
                return
            # A grandchild that holds the pipe open would hide that the process has ended.
            if self._process.poll() is not None and not ready.poll(0):
                raise EOFError
            self._check_memory()
        raise TargetHung(self._op, self._limit)

    def _check_memory(self) -> None:
        try:
            statm = Path(f"/proc/{self._process.pid}/statm").read_text()
        except OSError:  # no such system, or no such process any more
            return
        used = int(statm.split()[1]) * PAGE >> 20
        if used > self.memory_limit:
            raise TargetTooLarge(self._op, used, self.memory_limit)

    def returncode_soon(self) -> int | None:
        """The return code of a process that has closed its output; None if it does not end."""
        try:
            return self._process.wait(EXIT_PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def end(self, *, nicely: bool) -> None:
        """Ends the whole group and reaps its leader; after it nothing of the target runs."""
        if self._ended or os.getpid() != self._owner:  # a fork of ours does not own the target
            return
        self._stdin.close()
        if nicely:
            self.returncode_soon()
            self._signal_group(signal.SIGTERM)
            patience = time.monotonic() + EXIT_PATIENCE
            while self._signal_group(0) and time.monotonic() < patience:
                self._process.poll()
                time.sleep(0.005)
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._drain.join(EXIT_PATIENCE)  # a process that has left the group may hold stderr
        self._stdout.close()
        self._ended = True

    def _signal_group(self, number: int) -> bool:
        """Whether anybody was there to be signalled."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS: not permitted if all are zombies
            return False
        return True


class _Tail:
    """The end of what was written to stderr, drained so that a flood cannot block the target."""

    def __init__(self) -> None:
        self._kept = b""
        self._lock = threading.Lock()

    def drain(self, stream: IO[bytes]) -> None:
        with stream:
            while data := stream.read(1 << 16):
                with self._lock:
                    self._kept = (self._kept + data)[-STDERR_KEPT:]

    def clear(self) -> None:
        with self._lock:
            self._kept = b""

    def text(self) -> str:
        return self._kept.decode(errors="replace")


def _reply(op: str, line: bytes) -> Reply:
    try:
        reply = _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise TargetBroken(op, "the reply is not JSON", excerpt(line)) from None
    if isinstance(reply, dict) and isinstance(reply.get("ok"), bool):
        return reply
    raise TargetBroken(op, 'the reply is not an object with "ok" true or false', excerpt(line))
