"""Environments for a process in which something is missing, full, closed or unusual."""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

Environment = Mapping[str, str | None]
UNCHANGED: Environment = {}
PIPES: Mapping[str, Any] = {}


class Place(NamedTuple):
    """The environment of a command.

    Attributes:
        env: environment variables; None removes one.
        stops: whether the command may refuse to run (exit code 2), or end with `also`.
        also: another exit code with which the command may end.
        streams: the standard streams of the process, instead of pipes.
        before: a function that runs in the new process before the command starts.
        mount: mount options for a separate file system in which the command runs; {size} is filled
            in.
        name: the name of the folder in which the command runs, instead of "here".
        at_once: the number of commands that run at the same time.
    """

    env: Environment = UNCHANGED
    stops: bool = False
    also: int | None = None
    streams: Mapping[str, Any] = PIPES
    before: Callable[[], None] | None = None
    mount: str = ""
    name: bytes = b""
    at_once: int = 1

    def is_available(self) -> bool:
        return sys.platform == "linux" and (not self.mount or _may_mount())

    def popen(
        self, command: Sequence[str], here: Path, base: Mapping[str, str], chance: random.Random
    ) -> "subprocess.Popen[str]":
        environment = {**base, **self.env}
        folder = os.fsencode(here)
        if self.name:
            folder = os.path.join(folder, self.name)
            os.makedirs(folder, exist_ok=True)
        if self.mount:
            command = mounted(command, self.mount.format(size=chance.randrange(1, 40) * 4096))
        streams = {
            name: open(where, "r+b", buffering=0) if isinstance(where, str) else where  # noqa: SIM115
            for name, where in self.streams.items()
        }
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, **pipes, **streams}
        try:
            return subprocess.Popen(
                command,
                cwd=folder,
                env={name: value for name, value in environment.items() if value is not None},
                preexec_fn=self.before,
                start_new_session=True,
                text=True,
                errors="backslashreplace",
                **given,
            )
        finally:
            for stream in streams.values():
                if not isinstance(stream, int):
                    stream.close()


def mounted(command: Sequence[str], options: str) -> list[str]:
    """Return a command that runs this one in a separate file system, and copies all files out of
    it at the end."""
    script = (
        'out=$PWD; mkdir "$out/in" && mount -t tmpfs -o "$0" none "$out/in" || exit 71;'
        ' cd "$out/in" || exit 71;'
        ' "$@"; code=$?; cp -r "$out/in/." "$out/" 2>/dev/null; cd "$out"; umount --lazy "$out/in";'
        ' rmdir "$out/in"; exit $code'
    )
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, options, *command]


@cache
def _may_mount() -> bool:
    """Return whether this user may mount a file system in a user namespace."""
    probe = mounted(["true"], "size=4096")
    try:
        ran = subprocess.run(probe, cwd=tempfile.gettempdir(), check=False, capture_output=True)
    except FileNotFoundError:
        return False
    return ran.returncode == 0


def _close(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


def _limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, most))


def _ignore() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def _mask() -> None:
    os.umask(0o777)


NO_HOME = {"HOME": None, "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None, "USER": None}
ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PLACES = {
    "nothing unusual": Place(),
    "no HOME": Place(NO_HOME),
    "HOME is not writable": Place({"HOME": "/proc", "XDG_CACHE_HOME": None}),
    "HOME is a device": Place({"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}),
    "TMPDIR does not exist": Place({"TMPDIR": "/nowhere/at/all"}),
    "LANG=C, no UTF-8": Place(ASCII),
    "streams in ASCII": Place({"PYTHONIOENCODING": "ascii"}),
    "unknown locale and time zone": Place({"LC_ALL": "xx_YY", "TZ": "No/Where"}),
    "no PATH": Place({"PATH": None}),
    "no environment": Place(dict.fromkeys(os.environ)),
    "a terminal one column wide": Place({"COLUMNS": "1", "LINES": "1"}),
    "a width that is not a number": Place({"COLUMNS": "wide", "TERM": "no-such-terminal"}),
    "stdin closed": Place(before=partial(_close, 0)),
    "stdout closed": Place(before=partial(_close, 1)),
    "stderr closed": Place(before=partial(_close, 2)),
    "all streams closed": Place(before=partial(_close, 0, 1, 2)),
    "stdout full": Place(stops=True, streams={"stdout": "/dev/full"}),
    "stderr full": Place(streams={"stderr": "/dev/full"}),
    "signals ignored": Place(before=_ignore),
    "umask 777": Place(stops=True, before=_mask),
    "at most 24 open files": Place(
        stops=True, also=3, before=partial(_limit, resource.RLIMIT_NOFILE, 24)
    ),
    "files of at most 4 KB": Place(
        stops=True, also=3, before=partial(_limit, resource.RLIMIT_FSIZE, 4096)
    ),
    "a full disk": Place(stops=True, also=3, mount="size={size}"),
    "a disk with few inodes": Place(stops=True, also=3, mount="size=16m,nr_inodes=4"),
    "a read-only folder": Place(stops=True, also=3, mount="ro"),
    "a folder name with a line break": Place(name=b"two\nlines; $(touch owned) 'quoted\""),
    "a folder name that is not UTF-8": Place(stops=True, name=b"\xff\xfe"),
    "two commands at once": Place(stops=True, at_once=2),
}
