"""The process behind a pipe: exchange lines with it within time limits, and end it with all that it
started.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from ...model.faults import TargetBroken, TargetHung, TargetTooLarge, excerpt
from ..processes.watchdog import WatchedProcess

LONGEST_LINE = 16 * 1024 * 1024  # bytes; a process that writes a longer line is out of control
STDERR_KEPT = 8 * 1024  # bytes
EXIT_PATIENCE = 0.5  # seconds for a process to end by itself, and again after SIGTERM
DEATH_PATIENCE = 3.0  # seconds until a process that died is reaped, on a busy machine
LOOK_AROUND = 0.25  # seconds between checks whether a silent process lives, and how large it is
LOOK_EVERY = 16  # if the process is never silent, its memory is checked after this many answers
SERVING = "jsonl.py"  # the file at which our own calls begin in a stack
PAGE = os.sysconf("SC_PAGE_SIZE")


class Tail:
    """The last part of stderr, which is read constantly so that a flood of output cannot block the
    target."""

    def __init__(self) -> None:
        self._kept = b""
        self._lock = threading.Lock()

    def drain(self, stream: IO[bytes]) -> None:
        """Read the stream to its end; this runs in a separate thread."""
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
    """The process, its watchdog, and the three pipes to it.

    `memory_limit` is in MiB.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None,
        folder: Path | None,
        stderr: Tail,
        memory_limit: int,
    ) -> None:
        pipe = subprocess.PIPE
        self._process = WatchedProcess(
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
        # If a target does not read its input, it must not block us for longer than its time limit.
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
        """Send one line and return the answering line, within `limit` seconds. Raise EOFError if
        the process has ended, and a TargetFault if no line came, it used too much memory, or it
        broke the protocol."""
        self._op, self._limit, self._deadline = op, limit, time.monotonic() + limit
        self._answers += 1
        if self._answers >= LOOK_EVERY:
            self._answers = 0
            self._check_memory()
        if self._readable.poll(0) and (early := os.read(self._out, 1 << 16)):
            raise TargetBroken(op, "it printed a line without a request", excerpt(early))
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
        """Return the next line; nothing may follow it."""
        received, looked = bytearray(), 0
        while (end := received.find(b"\n", looked)) < 0:
            looked = len(received)
            if looked > LONGEST_LINE:
                raise TargetBroken(self._op, "a line is longer than 16 MiB", excerpt(received))
            self._wait(self._readable)
            if not (data := os.read(self._out, 1 << 16)):
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
        """Return the stack of a Python target that schedproof serves (`jsonl.serve`). For that it
        gets a signal. The signal ends any other kind of process, but that would be killed a moment
        later anyway."""
        before = self._stderr.text()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.leader, signal.SIGUSR1)
        patience = time.monotonic() + EXIT_PATIENCE
        while time.monotonic() < patience and self._process.poll() is None:
            time.sleep(0.02)
            stacks = self._stderr.text().removeprefix(before)
            if stacks.endswith("\n") and "most recent call first" in stacks:
                inner, found, _ = stacks.partition(SERVING)
                return inner[: inner.rfind("\n") + 1] if found else stacks
        return ""

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
        """Return the return code of a process that has closed its output; None if it does not end
        within `patience` seconds."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def end(self, *, nicely: bool) -> None:
        if self._ended or os.getpid() != self._owner:  # in a fork, the target belongs to the parent
            return
        self._stdin.close()
        if nicely and self.returncode_soon() is None:
            self._process.signal_group(signal.SIGTERM)
            self.returncode_soon()
        self._process.end()
        self._drain.join(EXIT_PATIENCE)
        self._stdout.close()
        self._ended = True
        if self._sizes is not None:
            os.close(self._sizes)


def _open(path: str) -> int | None:
    """Open a file to be read repeatedly; None if the system does not have it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
