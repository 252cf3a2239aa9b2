"""Run a target behind a pipe: a process that answers JSON Lines within time limits.

Each line that is sent gets exactly one line in reply. After a fault, replies could no longer be
matched with requests. So a fault kills the process and everything that it has started, before the
error is raised. The next `start` spawns a new process.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
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
from ..files.disk import check_unique
from ..processes.fork_server import ForkedProcess, fork_server
from ..processes.watchdog import WatchedProcess
from .jsonl import HANGING
from .target_spec import MEMORY_LIMIT

LONGEST_LINE = 16 * 1024 * 1024  # bytes; a process that writes a longer line is considered broken
STDERR_KEPT = 8 * 1024  # bytes
EXIT_PATIENCE = 0.5  # seconds in which a process may end by itself, and again after SIGTERM
LOOP_PATIENCE = 3.0  # seconds to wait until a target has found the calls that do not return
DEATH_PATIENCE = 3.0  # seconds to wait until a dead process is reaped, on a busy machine
# Seconds between two checks of a silent process: is it alive, and how large is it?
LOOK_AROUND = 0.25
LOOK_EVERY = 16  # the memory of a process that is never silent is checked after this many answers
SERVING = "jsonl.py"  # the file at which our own frames begin in a stack
PAGE = os.sysconf("SC_PAGE_SIZE")


class Tail:
    """The last part of stderr. The pipe is read continuously, so that it never fills up and blocks
    the target."""

    def __init__(self) -> None:
        self._kept = b""
        self._lock = threading.Lock()

    def drain(self, stream: IO[bytes]) -> None:
        """Read the stream to its end. Call this in a separate thread."""
        with stream:
            while data := stream.read(1 << 16):
                with self._lock:
                    self._kept = (self._kept + data)[-STDERR_KEPT:]

    def clear(self) -> None:
        with self._lock:
            self._kept = b""

    def text(self) -> str:
        return self._kept.decode(errors="replace")


class Child:
    """The process, its watchdog, and the three pipes to the process. `memory_limit` is in MiB."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None,
        folder: Path | None,
        stderr: Tail,
        memory_limit: int,
        forked: ForkedProcess | None,
    ) -> None:
        pipe = subprocess.PIPE
        self._process = forked or WatchedProcess(
            command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, cwd=folder, env=env
        )
        self._stdin = cast(IO[bytes], self._process.stdin)
        self._stdout = cast(IO[bytes], self._process.stdout)
        self._in, self._out = self._stdin.fileno(), self._stdout.fileno()
        self._owner = os.getpid()
        self._memory_limit = memory_limit
        self._stderr = stderr
        self._answers = 0
        self._sizes = _open(f"/proc/{self._process.leader}/statm")
        # If a target does not read its input, a write must not block for longer than the time
        # limit.
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
        return self._process.leader

    def exchange(self, op: str, question: bytes, limit: float) -> bytes:
        """Send one line and return the answer. Raise EOFError if the process has ended, and a
        TargetFault if it breaks the protocol or does not answer within `limit` seconds."""
        self._op, self._limit, self._deadline = op, limit, time.monotonic() + limit
        self._answers += 1
        if self._answers >= LOOK_EVERY:
            self._answers = 0
            self._check_memory()
        if self._readable.poll(0) and (early := os.read(self._out, 1 << 16)):
            raise TargetBroken(op, "it printed a line that answers no request", excerpt(early))
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
        """Return the next line. Raise an error if more output follows it."""
        received, looked = bytearray(), 0
        while (end := received.find(b"\n", looked)) < 0:
            looked = len(received)
            if looked > LONGEST_LINE:
                raise TargetBroken(self._op, "a line is longer than 16 MiB", excerpt(received))
            self._wait(self._readable)
            try:
                data = os.read(self._out, 1 << 16)
            except OSError:
                if not self._ended:
                    raise
                data = b""  # another thread has closed the pipe
            if not data:
                raise EOFError
            received += data
        if len(received) > end + 1:
            raise TargetBroken(self._op, "it sent more than one reply", excerpt(received))
        return bytes(received[:end])

    def _wait(self, ready: select.poll) -> None:
        while (remaining := self._deadline - time.monotonic()) > 0:
            if ready.poll(math.ceil(min(remaining, LOOK_AROUND) * 1000)):
                return
            # A grandchild may hold the pipe open after the process has ended.
            if self._process.poll() is not None and not ready.poll(0):
                raise EOFError
            self._check_memory()
        raise TargetHung(self._op, self._limit, self._stacks())

    def _stacks(self) -> str:
        """Return the stack of a Python target that schedproof serves (`jsonl.serve`).

        On a signal, such a target prints its stack. Unless it hangs in a C function, it then prints
        the calls that do not return; if there are any, return these. The signal ends any other
        process, which would be killed a moment later anyway.
        """
        before = self._stderr.text()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.leader, signal.SIGUSR1)
        patience, printed = time.monotonic() + EXIT_PATIENCE, ""
        while time.monotonic() < patience and self._process.poll() is None:
            time.sleep(0.02)
            stacks = self._stderr.text().removeprefix(before)
            hanging, end, _ = stacks.rpartition(HANGING)[2].partition("\n\n")
            if HANGING in stacks and end:
                return own_stack(f"{HANGING}{hanging}\n")
            if not printed and stacks.endswith("\n") and "most recent call first" in stacks:
                patience, printed = time.monotonic() + LOOP_PATIENCE, own_stack(stacks)
        return printed

    def _check_memory(self) -> None:
        if self._sizes is None:
            return
        try:
            sizes = os.pread(self._sizes, 100, 0)
        except OSError:  # the process has ended
            return
        used = int(sizes.split()[1]) * PAGE >> 20
        if used > self._memory_limit:
            raise TargetTooLarge(self._op, used, self._memory_limit)

    def returncode_soon(self, patience: float = EXIT_PATIENCE) -> int | None:
        """Return the return code of a process that has closed its output, or None if it does not
        end within `patience` seconds."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def end(self, *, nicely: bool) -> None:
        # After a fork, the target belongs to the parent.
        if self._ended or os.getpid() != self._owner:
            return
        self._ended = True  # first, because two threads may end the process
        self._stdin.close()
        if nicely and self.returncode_soon() is None:
            self._process.signal_group(signal.SIGTERM)
            self.returncode_soon()
        self._process.end()
        self._drain.join(EXIT_PATIENCE)
        self._stdout.close()
        if self._sizes is not None:
            os.close(self._sizes)


def _open(path: str) -> int | None:
    """Open a file that will be read repeatedly. Return None if the system does not provide it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


# Seconds: the shortest time limit of a `start` in a process that has already had a run.
RESTART_LIMIT = 30.0

Reply = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class PipeTarget:
    """A scheduler under test in its own process, which the first `start` spawns.

    Every operation returns the reply unchanged, even if its "ok" is false, and may raise a
    TargetFault. A PipeTarget must not be used by two threads at once.

    `start_limit` (seconds) applies to a new process until its first successful `start`, and thus
    covers its imports. Later calls to `start` get `step_limit` or 30 s, whichever is greater. Every
    other operation gets `step_limit`. `memory_limit` (MiB resident) applies to the process itself,
    if the system reports it (Linux).

    A fork server may import the modules `imports` for the process. If `forks` is the socket of such
    a server, the process is forked from it; otherwise, or if the server fails, the process is
    started from scratch.
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
        imports: Sequence[str] = (),
    ) -> None:
        if not command:
            raise ValueError("the command of a target needs at least one word")
        self.command = tuple(command)
        self.imports = imports
        self.forks: Path | None = None
        self._env = env
        self._folder = folder
        self._start_limit = start_limit
        self._step_limit = step_limit
        self._memory_limit = memory_limit
        self._child: Child | None = None
        self._stderr = Tail()
        self._has_answered = False
        self._has_started = False
        self._is_fresh = False  # output before the first `start` counts as part of it

    @property
    def stderr_tail(self) -> str:
        """Return what the process has written to stderr since the last `start`, at most the last
        8 KiB."""
        return self._stderr.text()

    @property
    def process_id(self) -> int | None:
        return None if self._child is None else self._child.process_id

    def begin(self) -> None:
        """Spawn the process now, so that it loads its modules while other work is done."""
        if self._child is None:
            self._child = self._spawn()
            self._has_started, self._is_fresh = False, True

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Start a run, in the existing process or in a new one."""
        self.begin()
        if not self._is_fresh:
            self._stderr.clear()
        self._is_fresh = False
        limit = max(self._step_limit, RESTART_LIMIT) if self._has_started else self._start_limit
        question = {"op": "start", "system": system, "revision": revision, "config": config}
        reply = self._ask(question, limit)
        self._has_started |= isinstance(reply, dict) and reply.get("ok") is True
        return reply

    def add(self, request: Mapping[str, Any]) -> Reply:
        return self._ask({"op": "add", "request": request}, self._step_limit)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002 (the protocol's word)
        when = {"inside": True} if inside else {}
        return self._ask({"op": "abort", "id": id, **when}, self._step_limit)

    def control(self, kind: str) -> Reply:
        return self._ask({"op": "control", "kind": kind}, self._step_limit)

    def step(self) -> Reply:
        return self._ask({"op": "step"}, self._step_limit)

    def stop(self) -> Reply:
        """End the run. The process keeps running, and `start` may begin another run in it."""
        if self._child is None:
            return {"ok": True}
        return self._ask({"op": "stop"}, self._step_limit)

    def close(self) -> None:
        """Tell the process to exit, then end everything that it has started. May be called more
        than once."""
        self._end(nicely=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self) -> Child:
        self._stderr = Tail()
        forked = None
        if self.forks is not None:
            with contextlib.suppress(OSError):
                forked = ForkedProcess(self.forks, self._env or {}, self._start_limit)
        try:
            child = Child(
                *(self.command, self._env, self._folder),
                *(self._stderr, self._memory_limit, forked),
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise TargetNotStarted(self.command, why, "") from None
        # The finalizer also ends the process when this object is garbage-collected, and when the
        # interpreter exits.
        self._forget = weakref.finalize(self, child.end, nicely=True)
        return child

    def _ask(self, question: Mapping[str, Any], limit: float) -> Reply:
        op, line, child = question["op"], _encode(question) + b"\n", self._child
        if child is None:
            raise TargetNotStarted(self.command, f"{op!r} came before 'start'", self.stderr_tail)
        try:
            reply = read_reply(op, child.exchange(op, line, limit))
        except EOFError:
            returncode = child.returncode_soon(DEATH_PATIENCE)
            self._end()
            if returncode is None:
                raise TargetBroken(op, "it closed a pipe but kept running", "") from None
            if not self._has_answered:
                why = f"it ended with {ending(returncode)} before it answered the first start"
                raise TargetNotStarted(self.command, why, self.stderr_tail) from None
            raise TargetDied(op, returncode, own_stack(self.stderr_tail)) from None
        except BaseException:
            self._end()
            raise
        self._has_answered = True
        return reply

    def _end(self, *, nicely: bool = False) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end(nicely=nicely)
            self._forget.detach()


@contextlib.contextmanager
def forking(pipes: Sequence[PipeTarget]) -> Iterator[Path | None]:
    """Start a server that can fork the processes of all these targets, and yield the server's
    socket. Yield None if no server can do this."""
    kinds = {(pipe.command, tuple(pipe.imports)) for pipe in pipes}
    if len(kinds) != 1 or not pipes[0].imports:
        yield None
        return
    with fork_server(pipes[0].command, pipes[0]._env or {}, pipes[0].imports) as server:
        yield server


def own_stack(stderr: str) -> str:
    """Return what a process wrote to stderr. If this contains a stack, leave out the frames that
    called the target, and everything after them."""
    stack = stderr.find("most recent call first")
    serving = stderr.find(SERVING, stack) if stack >= 0 else -1
    return stderr if serving < 0 else stderr[: stderr.rfind("\n", 0, serving) + 1]


def read_reply(op: str, line: bytes) -> Reply:
    """Return the reply that a line contains. Raise TargetBroken if the line is not a reply."""
    try:
        reply = _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise TargetBroken(op, "the reply is not JSON", excerpt(line)) from None
    if isinstance(reply, dict) and isinstance(reply.get("ok"), bool):
        try:
            check_unique(line, reply)
        except (ValueError, RecursionError) as error:
            raise TargetBroken(op, f"the reply is not JSON: {error}", excerpt(line)) from None
        return reply
    raise TargetBroken(op, 'the reply is not an object with "ok" true or false', excerpt(line))
