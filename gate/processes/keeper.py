"""Keeps a target's process: whatever it starts is over when the gate is, however the gate ends.

    python -I -S keeper.py LIFELINE COMMAND...

A process between ours and the target. LIFELINE is a socket to us. The keeper writes the process id
of the target to it, or the number of the error that kept it from starting, below 0. When our end
closes (we may have been killed), or the target ends, the keeper kills what is left, and ends as the
target did. A process that leaves the target, as a daemon does, comes to the keeper (Linux).
"""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SUBREAPER = 36  # prctl's: orphans of our descendants become our children


def main() -> None:
    """Start the target, wait, and leave nothing behind."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    with suppress(OSError, AttributeError):  # a system without
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    ended = _told_of_ends()
    for number in STOPS:  # it ends when we do
        signal.signal(number, signal.SIG_IGN)
    try:
        target = os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigdef=STOPS)
    except OSError as error:
        os.write(lifeline, b"%d" % -(error.errno or 1))
        return
    os.write(lifeline, b"%d" % target)
    _let_go_of_pipes()
    status = None
    while status is None and lifeline not in select.select([lifeline, ended], [], [])[0]:
        os.read(ended, 4096)
        status = _reaped(target)
    _kill_all(target)
    _end_as(status or 0)


def _told_of_ends() -> int:
    """A pipe that becomes readable when a child ends."""
    ended, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return ended


def _let_go_of_pipes() -> None:
    """Only the target holds them: we are to see when it lets go."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _reaped(target: int) -> int | None:
    """Reap all that have ended; the status of the target, if it is among them."""
    status = None
    with suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            status = one[1] if one[0] == target else status
    return status


def _kill_all(target: int) -> None:
    """Kill what is left, again and again: the children of what is killed become ours."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(target, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            for one in _descendants():
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            os.waitpid(-1, 0)


def _descendants() -> list[int]:
    """Of this process, where the system lists them."""
    parents = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        stat = f"/proc/{name}/stat"
        with suppress(OSError, ValueError, IndexError), open(stat, "rb") as file:
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found = [os.getpid()]
    for one in found:  # it grows
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
