"""Run commands of schedproof as marked processes, so that processes they leave behind can be
found."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.console.step_lines import one_line

MARK = "SCHEDPROOF_HOSTILE"
PATIENCE = 5.0  # seconds in which all started processes must be gone
CODES = (0, 1, 2, 3)
# What Python prints at the start of a line. Lines of a target are indented.
PYTHONS = ("Traceback (most recent", "Exception ignored")
INTERNAL = "internal error"
NOT_OURS = ("::error::owned", "::set-output", "<script>")  # from a target, at the start of a line


class Ended(NamedTuple):
    """A command that has ended: its exit code, its output, and its duration in seconds."""

    code: int
    out: str
    err: str
    seconds: float


def begin(
    words: Sequence[str], folder: Path, mark: str, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a marked command in a folder, in its own session."""
    with open(folder / "out.txt", "wb") as out, open(folder / "err.txt", "wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "schedproof", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env={**os.environ, MARK: mark, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
            start_new_session=True,
        )


def end(process: "subprocess.Popen[bytes]", folder: Path, began: float, limit: float) -> Ended:
    """Wait for the command. After the limit, kill it and raise TimeoutError."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise TimeoutError from None
    texts = [
        (folder / name).read_bytes().decode(errors="backslashreplace")
        for name in ("out.txt", "err.txt")
    ]
    return Ended(process.returncode, texts[0], texts[1], time.monotonic() - began)


def survivors(mark: str, but: Sequence[int] = ()) -> list[str]:
    """Return the processes with this mark that are still alive after a while, and kill them."""
    until = time.monotonic() + PATIENCE
    while (alive := _marked(mark, but)) and time.monotonic() < until:
        time.sleep(0.02)
    for process_id in alive:
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    return [*alive.values()]


def _marked(mark: str, but: Sequence[int]) -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) in but:
            continue
        with suppress(OSError):
            place = Path("/proc", name)
            if f"{MARK}={mark}\0".encode() in place.joinpath("environ").read_bytes():
                found[int(name)] = (
                    place.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
                )
    return found


def faults(ended: Ended, codes: Sequence[int] = CODES) -> list[str]:
    """Return the faults in the exit code or the output of a command."""
    found = []
    if ended.code not in codes:
        found.append(f"exit code {ended.code}: {ended.err[-400:]!r}")
    if INTERNAL in ended.err:
        found.append(ended.err.strip()[-300:])
    if any(line.startswith(PYTHONS) for line in ended.err.splitlines()):
        found.append(f"a traceback: {ended.err[-300:]!r}")
    for text in (ended.out, ended.err):
        unclean = [line for line in text.split("\n") if one_line(line) != line.strip()]
        found += [f"not printable: {line!r:.200}" for line in unclean[:1] if "\x1b" in line]
        found += [
            f"not a line of schedproof: {line!r:.200}"
            for line in text.split("\n")
            if line.startswith(NOT_OURS)
        ]
    return found
