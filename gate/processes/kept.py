"""A process that does not outlive us, and neither does what it starts (`keeper`)."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

KEEPER = str(Path(__file__).with_name("keeper.py"))


class Kept(subprocess.Popen[bytes]):
    """A command in a session of its own. It ends with its return code, and so do all processes
    that it has started; when we end, it is killed.

    `leader` is its process id. A signal that is sent goes to it; `pid` is that of its keeper.
    """

    def __init__(self, command: Sequence[str], pass_fds: Sequence[int] = (), **more: Any) -> None:
        """Start it; `more` as for `subprocess.Popen`.

        Raises:
            OSError: it cannot be started.
            ValueError: a word of the command has a null byte.
        """
        self._lifeline, other = socket.socketpair()
        try:
            with other:
                words = [sys.executable, "-I", "-S", KEEPER, str(other.fileno()), *command]
                fds = (*pass_fds, other.fileno())
                super().__init__(words, pass_fds=fds, start_new_session=True, **more)
            self.leader = self._started()
        except BaseException:
            self._lifeline.close()
            raise

    def send_signal(self, sig: int) -> None:
        """Send a signal to the command, if it is still there."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.leader, sig)

    def signal_group(self, sig: int) -> None:
        """Send a signal to the command, and to what it has started in its group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.leader, sig)

    def end(self) -> None:
        """Kill it and all that it has started; after this nothing of it runs."""
        with suppress(OSError):  # the keeper has ended, and closed its end
            self._lifeline.shutdown(socket.SHUT_RDWR)  # also where a fork of ours holds it, too
        self._lifeline.close()
        self.wait()

    def _started(self) -> int:
        answer = int(self._lifeline.recv(32) or -errno.EAGAIN)
        if answer < 0:
            for stream in (self.stdin, self.stdout, self.stderr):
                if stream is not None:
                    stream.close()
            self.wait()
            raise OSError(-answer, os.strerror(-answer))
        return answer


def run_kept(
    command: Sequence[str], question: bytes | None = None, **more: Any
) -> "subprocess.CompletedProcess[bytes]":
    """What a command prints on stdout, and its return code; `more` as for `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
    """
    stdin = subprocess.DEVNULL if question is None else subprocess.PIPE
    process = Kept(command, stdin=stdin, stdout=subprocess.PIPE, **more)
    try:
        out, err = process.communicate(question)
    finally:
        process.end()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
