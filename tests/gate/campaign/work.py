"""Small campaigns on real processes, and how they are killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from schedproof.gate.campaign.items import Sample, canonical, digest_of
from schedproof.gate.campaign.ledger import Done, LedgerError, read_ledger

# Instead of `-m schedproof`: a search takes a quarter of a second.
PROGRAM = ("-c", "from schedproof.tests.gate.campaign import fake; fake.main()")
Content = dict[str, dict[str, str | None]]


def command(ledger: Path, *options: str) -> list[str]:
    folder = ledger.parent / "out"
    whole = [sys.executable, *PROGRAM, "campaign", "--ledger", str(ledger)]
    return [*whole, "--out", str(folder), *options]


def begun(ledger: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(ledger, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ran(ledger: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(ledger, *options), capture_output=True, text=True, check=False)


def content_of(ledger: Path) -> Content:
    """What follows from the seed: ledgers that hold the same are equal in this, wherever and
    whenever their items ran."""
    there = read_ledger(ledger)
    items: dict[str, str | None] = {}
    for line in ledger.read_bytes().splitlines(keepends=True)[1:]:
        if line.endswith(b"\n"):
            done = msgspec.json.decode(line, type=Done)
            if isinstance(done.item, Sample):
                assert digest_of(done.item) not in items
                items[digest_of(done.item)] = canonical(done.result).decode()
    findings = {
        name: finding and canonical(finding).decode()
        for name in there.failures_to_shrink()
        for finding in (there.findings[name],)
        if name in there.findings
    }
    return {"items": items, "findings": findings}


def items_in(ledger: Path) -> int:
    return read_ledger(ledger).items


def until_items(ledger: Path, items: int, process: "subprocess.Popen[str]") -> None:
    """Wait until the ledger has so many items, or the process has ended."""
    while process.poll() is None:
        try:
            if items_in(ledger) >= items:
                return
        except LedgerError:
            pass
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def workers(pid: int) -> list[int]:
    """The processes of a pool."""
    return [child for child in children(pid) if b"spawn_main" in _command_line(child)]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def gone(pids: Sequence[int], seconds: float = 30.0) -> bool:
    """None of them is left, or at most as a zombie."""
    ends = time.monotonic() + seconds
    while any(_command_line(pid) for pid in pids):
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
