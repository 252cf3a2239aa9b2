"""Run processes so that neither they nor anything that they start outlives schedproof.

    python -I -S watchdog.py LIFELINE REPORT COMMAND...

This file contains both sides: `WatchedProcess`, which schedproof uses in its own process, and a
program, the watchdog. The watchdog consists of two processes between our process and the command.
LIFELINE is a socket to our process.

The watchdog acts when the command ends, or when our end of the socket closes, perhaps because we
were killed. It kills all of the command's descendants and exits with the command's status. On Linux
it also adopts processes that detach themselves from the command, as daemons do.

Two processes are needed because some engines send a signal to their parent when they fail. The
command is the child of the inner process; if the inner process is killed, the outer one continues.
If the command stops or kills both watchdog processes, our side kills the remaining processes of the
command.

REPORT is a pipe to our process. The process that becomes the command writes its process id to this
pipe, followed by an errno if the command cannot be started. The pipe closes when the command
starts. Both watchdog processes have closed their copies by then, so nothing that the command does
to them can delay or lose the report.

The watchdog is started for every target, so this file imports nothing that loads slowly.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SUBREAPER = 36  # an option of prctl: orphaned descendants become our children
PATIENCE = 1.0  # seconds for a watchdog to end, and then for us to kill its processes


class WatchedProcess(subprocess.Popen[bytes]):
    """A command in its own session. When the command or schedproof ends, everything that the
    command started is killed.

    `leader` is the process id of the command, to which signals are sent. `pid` is that of the
    watchdog.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        bufsize: int = -1,
        cwd: "str | os.PathLike[str] | None" = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._lifeline, other = socket.socketpair()
        report, report_end = os.pipe()
        theirs = other.fileno(), report_end
        try:
            with other, open(report_end, "wb"):
                watchdog = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
                super().__init__(
                    [*watchdog, *map(str, theirs), *command],
                    pass_fds=(*pass_fds, *theirs),
                    start_new_session=True,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    bufsize=bufsize,
                    cwd=cwd,
                    env=env,
                )
            self.leader = self._read_leader(report)
            self._handle = pidfd(self.leader)
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            os.close(report)

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.leader, sig)

    def signal_group(self, sig: int) -> None:
        """Send a signal to the command and to everything in its process group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.leader, sig)

    def end(self) -> None:
        """Kill the command and everything that it started, and wait until all of it has ended."""
        with suppress(OSError):  # raised if the watchdog has already ended
            # this works even if a forked process still holds the socket
            self._lifeline.shutdown(socket.SHUT_RDWR)
        self._lifeline.close()
        with suppress(subprocess.TimeoutExpired):
            self.wait(PATIENCE)
        if self.poll() is None:  # the watchdog was stopped (SIGSTOP)
            ends = time.monotonic() + PATIENCE
            while (family := _descendants(self.pid)) and time.monotonic() < ends:
                _kill(family)
            _kill([self.pid])
        self._kill_leader()
        self.wait()

    def _kill_leader(self) -> None:
        # If the watchdog was killed, the command is still running. Use its handle: its process id
        # may have been reused.
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.killpg(self.leader, signal.SIGKILL)
            os.close(handle)

    def _read_leader(self, report: int) -> int:
        with open(report, "rb", closefd=False) as file:
            leader, *error = file.read().split() or (0, errno.EAGAIN)
        if error:
            _close_streams(self)
            self.wait()
            raise OSError(int(error[0]), os.strerror(int(error[0])))
        return int(leader)


def run_watched(
    command: Sequence[str],
    stdin: bytes | None = None,
    *,
    pass_fds: Sequence[int] = (),
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end and return its output and return code, as `subprocess.run` does.

    Raises:
        subprocess.TimeoutExpired: the command took longer than `timeout` seconds.
    """
    process = WatchedProcess(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        pass_fds=pass_fds,
        env=env,
    )
    try:
        out, err = process.communicate(stdin, timeout)
    finally:
        process.end()
        _close_streams(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _close_streams(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def end_with_parent() -> None:
    """Make this process end when its parent ends, for whatever reason. `multiprocessing` must have
    started the process."""
    import multiprocessing
    import threading
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, name="ends with parent", daemon=True).start()


def main() -> None:
    """Start the command, wait until the command or our parent ends, and kill whatever is left."""
    lifeline, report, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for descriptor in (lifeline, report):
        os.set_inheritable(descriptor, False)
    stand_between(lifeline, report, end_as)
    try:
        os.execvp(command[0], [*command])
    except OSError as error:
        os.write(report, b" %d" % (error.errno or 1))
        os._exit(127)


def stand_between(
    lifeline: int, report: int, end: Callable[[int], None], own: Sequence[int] = ()
) -> None:
    """Turn this process into the outer watchdog, and return only in the process to be watched.

    `end` is called with the status of the watched process, and must end the outer watchdog. Only
    the outer watchdog keeps the lifeline and the descriptors `own`.
    """
    for number in STOPS:  # the watchdog ends only when the command ends
        signal.signal(number, signal.SIG_IGN)
    _adopt_orphans()
    outer, inner = socket.socketpair()
    if (child := os.fork()) == 0:
        for descriptor in (lifeline, *own):
            os.close(descriptor)
        outer.close()
        _adopt_orphans()
        inner.recv(1)  # the outer one has closed the report
        if leader := _start(report, inner):
            _watch(inner.fileno(), leader, leader, end_as)
        inner.close()
        return
    inner.close()
    os.close(report)
    outer.send(b"s")
    if not (leader := int(outer.recv(32) or 0)):
        os._exit(0)
    _watch(lifeline, child, leader, end)


def _start(report: int, outer: socket.socket) -> int:
    """Fork the process to be watched, tell the outer watchdog its id, and return the id. In the
    process itself, return 0."""
    ready, release = os.pipe()
    if (leader := os.fork()) == 0:
        os.setsid()
        os.write(report, b"%d" % os.getpid())
        os.close(release)
        os.read(ready, 1)  # returns when the inner watchdog has closed its copies of both pipes
        os.close(ready)
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)
        return 0
    outer.send(b"%d" % leader)
    os.close(report)
    os.close(release)
    os.close(ready)
    return leader


def _watch(lifeline: int, child: int, leader: int, end: Callable[[int], None]) -> None:
    _release_streams()
    child_ended = _child_pipe()
    while (status := _reap(child, leader)) is None:
        if lifeline in select.select([lifeline, child_ended], [], [])[0]:
            break
        os.read(child_ended, 4096)
    _kill_all(leader)
    end(status or 0)


def _adopt_orphans() -> None:
    with suppress(OSError, AttributeError):  # the system lacks prctl
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _child_pipe() -> int:
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _release_streams() -> None:
    # Only the command may hold the streams; otherwise schedproof would not notice when the command
    # closes them.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _reap(child: int, leader: int) -> int | None:
    """Reap children that have ended. Return the command's status if it is one of them, else
    None."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            process, status = ended
            if process == leader or (process == child and not _is_child(leader)):
                return status
    return None


def _is_child(process: int) -> bool:
    try:
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, AttributeError):  # not our child, or the system lacks waitid
        return False
    return True


def _kill_all(leader: int) -> None:
    # Repeat: children of killed processes become our children.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            _kill(_descendants(os.getpid()))
            os.waitpid(-1, 0)


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _descendants(ancestor: int) -> list[int]:
    """Return all descendants that are still running, without zombies."""
    parents = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        stat = f"/proc/{name}/stat"
        with suppress(OSError, ValueError, IndexError), open(stat, "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                parents[int(name)] = int(parent)
    family = [ancestor]
    for member in family:  # the list grows during the loop
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def pidfd(process: int) -> int | None:
    try:
        return os.pidfd_open(process)
    except (OSError, AttributeError):  # the process has ended, or the system lacks pidfds
        return None


def end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
