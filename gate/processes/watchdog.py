"""Processes that never outlive schedproof, together with everything that they start.

    python -I -S watchdog.py LIFELINE COMMAND...

This file is both sides. `WatchedProcess` is used by schedproof; run as a program, the file is the
watchdog, a process between schedproof and the command. LIFELINE is a socket to schedproof. The
watchdog writes the process id of the command to it, or a negative errno if the command cannot be
started. When the other end closes, perhaps because schedproof was killed, or when the command ends,
the watchdog kills all of the command's descendants and ends as the command did. On Linux it also
adopts processes that detach from the command, as daemons do.

Every target starts a watchdog, so this file imports nothing that loads slowly.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SUBREAPER = 36  # prctl's: orphans of our descendants become our children


class WatchedProcess(subprocess.Popen[bytes]):
    """A command in its own session. When it or schedproof ends, everything that it started is
    killed.

    `leader` is the command's process id, which receives signals; `pid` is the watchdog's.
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
        """Start the command; the other arguments are those of `subprocess.Popen`.

        Raises:
            OSError: the command cannot be started.
            ValueError: an argument has a null byte.
        """
        self._lifeline, other = socket.socketpair()
        try:
            with other:
                words = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(other.fileno())]
                super().__init__(
                    [*words, *command],
                    pass_fds=(*pass_fds, other.fileno()),
                    start_new_session=True,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    bufsize=bufsize,
                    cwd=cwd,
                    env=env,
                )
            self.leader = self._read_leader()
        except BaseException:
            self._lifeline.close()
            raise

    def send_signal(self, sig: int) -> None:
        """Send a signal to the command, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.leader, sig)

    def signal_group(self, sig: int) -> None:
        """Send a signal to the command and to everything in its process group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.leader, sig)

    def end(self) -> None:
        """Kill the command and everything that it has started, and wait until all of it has
        ended."""
        with suppress(OSError):  # the watchdog has ended, and closed its end
            self._lifeline.shutdown(socket.SHUT_RDWR)  # even if a fork of ours holds it as well
        self._lifeline.close()
        self.wait()

    def _read_leader(self) -> int:
        answer = int(self._lifeline.recv(32) or -errno.EAGAIN)
        if answer < 0:
            for stream in (self.stdin, self.stdout, self.stderr):
                if stream is not None:
                    stream.close()
            self.wait()
            raise OSError(-answer, os.strerror(-answer))
        return answer


def run_watched(
    command: Sequence[str],
    stdin: bytes | None = None,
    *,
    pass_fds: Sequence[int] = (),
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end and return its output and return code, as `subprocess.run` does.

    Raises:
        OSError: the command cannot be started.
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
        out, err = process.communicate(stdin)
    finally:
        process.end()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def end_with_parent() -> None:
    """End this process, which `multiprocessing` started, when its parent ends in any way."""
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
    """Start the command, wait until it or the parent ends, and leave no process behind."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    with suppress(OSError, AttributeError):  # a system without
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    child_ended = _child_pipe()
    for number in STOPS:  # we end when the command does
        signal.signal(number, signal.SIG_IGN)
    try:
        leader = os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigdef=STOPS)
    except OSError as error:
        os.write(lifeline, b"%d" % -(error.errno or 1))
        return
    os.write(lifeline, b"%d" % leader)
    _release_streams()
    status = None
    while status is None and lifeline not in select.select([lifeline, child_ended], [], [])[0]:
        os.read(child_ended, 4096)
        status = _reap(leader)
    _kill_all(leader)
    _end_as(status or 0)


def _child_pipe() -> int:
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _release_streams() -> None:
    # Only the command may hold them: we have to see when it closes them.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _reap(leader: int) -> int | None:
    """Reap all children that have ended; return the status of the command if it is among them."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            status = ended[1] if ended[0] == leader else status
    return status


def _kill_all(leader: int) -> None:
    # Again and again: the children of what is killed become ours.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            for process in _descendants():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            os.waitpid(-1, 0)


def _descendants() -> list[int]:
    parents = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        stat = f"/proc/{name}/stat"
        with suppress(OSError, ValueError, IndexError), open(stat, "rb") as file:
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    family = [os.getpid()]
    for member in family:  # it grows
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
