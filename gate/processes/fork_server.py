"""Fork the processes of targets from a process that has imported what all of them need.

An engine spends most of its start importing packages such as torch. The server is a process that
has imported these packages, but no module of an engine. When a `ForkedProcess` asks it to, the
server forks, and the fork imports the engine from the target's own folders, as a new process would.
So two versions of an engine never share one of the engine's modules.

Each fork has its own watchdogs, like the command of a `WatchedProcess`.

Standard library only: this file also runs inside the environment of a release under test.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .scratch import scratch_folder
from .watchdog import WatchedProcess, pidfd, stand_between

VARIABLE = "SCHEDPROOF_FORK_SERVER"  # the server's listening socket, and the modules to import
THREADS = "/proc/self/task"
STREAMS = 3
KILLED = 9  # the status of a process that SIGKILL ended


def serve_forks() -> None:
    """Serve, if this process is a server, and return only in its forks."""
    if VARIABLE not in os.environ:
        return
    number, *modules = os.environ.pop(VARIABLE).split()
    gc.disable()
    for module in modules:
        with suppress(Exception):  # an engine that needs the module will report the error
            importlib.import_module(module)
    gc.freeze()
    gc.enable()
    # A fork would lack the threads that an import has started. Only Linux shows them.
    if not os.path.isdir(THREADS) or len(os.listdir(THREADS)) > 1:
        sys.exit("this process cannot be forked")
    listener = socket.socket(fileno=int(number))
    while True:
        connection, _ = listener.accept()
        _reap()
        given = list[int]()
        with suppress(OSError):  # too many processes now may be fewer at the next request
            _, given, *_ = socket.recv_fds(connection, 1, STREAMS + 2)
            if len(given) == STREAMS + 2 and os.fork() == 0:
                break
        for descriptor in given:
            os.close(descriptor)
        connection.close()
    listener.close()
    _become_target(connection, given)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become_target(connection: socket.socket, given: Sequence[int]) -> None:
    *streams, lifeline, report = given
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for descriptor in (lifeline, report):
        os.set_inheritable(descriptor, False)
    with connection.makefile("rb") as file:
        env = json.load(file)
    os.setsid()

    def end(status: int) -> None:
        with suppress(OSError):
            connection.sendall(b"%d" % status)
        os._exit(0)

    connection.sendall(b"%d\n" % os.getpid())
    stand_between(lifeline, report, end, [connection.fileno()])
    os.close(report)
    connection.detach()  # already closed
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(env)
    importlib.invalidate_caches()
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))


class ForkedProcess(WatchedProcess):
    """A fork of the server at the socket `server`, with three pipes as its streams. Its watchdog is
    not our child, and reports how the process ended."""

    def __init__(self, server: Path, env: Mapping[str, str], limit: float) -> None:
        """Raise OSError if the server does not fork within `limit` seconds."""
        self.args, self.returncode, self._handle = str(server), None, None
        self._said = b""
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(limit)
        self._readable = select.poll()
        self._readable.register(self._connection, select.POLLIN)
        self._lifeline, other = socket.socketpair()
        stdin, stdout, stderr, report = (os.pipe() for _ in range(STREAMS + 1))
        self.stdin = os.fdopen(stdin[1], "wb", 0)
        self.stdout = os.fdopen(stdout[0], "rb", 0)
        self.stderr = os.fdopen(stderr[0], "rb", 0)
        theirs = [stdin[0], stdout[1], stderr[1], other.detach(), report[1]]
        try:
            try:
                self._connection.connect(str(server))
                socket.send_fds(self._connection, [b"f"], theirs)
                self._connection.sendall(json.dumps({**env}).encode())
                self._connection.shutdown(socket.SHUT_WR)
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            while b"\n" not in self._said:
                if not (said := self._connection.recv(32)):
                    raise ConnectionError("the server has ended")
                self._said += said
            self.pid = int(self._said.partition(b"\n")[0])
            self.leader = self._read_leader(report[0])
        except OSError:
            for end in (self.stdin, self.stdout, self.stderr, self._lifeline, self._connection):
                end.close()
            raise
        finally:
            os.close(report[0])
        self._handle = pidfd(self.leader)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        milliseconds = None if seconds is None else seconds * 1000
        while self.returncode is None and self._readable.poll(milliseconds):
            try:
                said = self._connection.recv(32)
            except ConnectionResetError:
                said = b""
            self._said += said
            if not said:
                status = int(self._said.partition(b"\n")[2] or KILLED)
                self.returncode = os.waitstatus_to_exitcode(status)
                self._connection.close()
        return self.returncode


@contextmanager
def fork_server(
    command: Sequence[str], env: Mapping[str, str], modules: Sequence[str]
) -> Iterator[Path | None]:
    """Start a server that imports the modules, and yield its socket, or None if it does not
    start. `command` runs a program that calls `serve_forks`."""
    with (
        scratch_folder() as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        place, nowhere = folder / "forks", subprocess.DEVNULL
        own = {name: value for name, value in env.items() if name != "PYTHONPATH"}
        own[VARIABLE] = " ".join([str(listener.fileno()), *modules])
        try:
            listener.bind(str(place))
            listener.listen()
            server = WatchedProcess(
                command,
                pass_fds=[listener.fileno()],
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
                env=own,
            )
        except OSError:
            yield None
            return
        listener.close()
        try:
            yield place
        finally:
            server.end()
