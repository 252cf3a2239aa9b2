"""Can every long command be killed at any moment?

Sends SIGKILL at random moments. The command must leave no half-written file and no process behind,
and its next run must be able to go on:

    make tool NAME=hostile.kills OPTIONS="--only campaign --kills 50"
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.files.scenario_file import FileError, read_scenario

from .processes import Ended, begin, end, faults, survivors
from .report import finish, parser

SECONDS = 600  # the time limit of a run that is not disturbed
FAULTY = [sys.executable, str(Path(__file__).with_name("bad_target.py"))]
FINDS = f"cmd:{' '.join(FAULTY)} 'members that it never got' step 20"
LOST = f"cmd:{' '.join(FAULTY)} hangs step 20"
GATE = ("--system", "vllm", "--profile", "quick", "--out", "out", "--ndjson", "events.ndjson")


class Work(NamedTuple):
    """A command, the exit codes that it may have if it is not killed, and its approximate
    duration in seconds. It is killed within that time."""

    words: tuple[str, ...]
    codes: tuple[int, ...]
    seconds: float


WORKS = {
    "gate": Work(("gate", "model", *GATE), (0,), 6),
    "gate --jobs 2": Work(("gate", "model", *GATE, "--jobs", "2"), (0,), 6),
    "gate of a target that hangs": Work(("gate", LOST, *GATE, "--step-limit", "1"), (1, 3), 4),
    "gate that finds": Work(("gate", FINDS, *GATE, "--rule", "ALL-R03"), (1, 3), 2),
    "search": Work(("search", "SPY-R07", "--prove", "--out", "out"), (0,), 5),
    "explore": Work(
        ("explore", "--system", "vllm", "--scope", "slots", "--checkpoint", "put", "--out", "out"),
        (0, 3),
        2,
    ),
    "corpus add": Work(
        ("corpus", "add", "two.json", "--rule", "ALL-R06", "--corpus", "out"), (0,), 1
    ),
    "campaign": Work(
        ("campaign", "--items", "6", "--workers", "2", "--ledger", "l.ndjson", "--out", "out"),
        (0, 1, 3),
        5,
    ),
    "diff": Work(
        (
            *("diff", "model", LOST, "--system", "vllm", "--profile", "quick", "--out", "out"),
            *("--step-limit", "1", "--time-limit", "10"),
        ),
        (0, 1, 3),
        6,
    ),
    # If the release is not installed yet, the first kills interrupt its installation.
    "matrix": Work(("matrix", "vllm==0.19.1", "--out", "out"), (0, 3), 20),
}
SCENARIO = {
    "format": "schedproof/scenario@1",
    "system": "vllm",
    "revision": "documented",
    "config": {},
    "requests": [{"id": "a", "prompt": [["a", 20]], "max_tokens": 3, "arrival": 0}],
}


class AttackReport(NamedTuple):
    """The results of killing one command several times in one folder."""

    work: str
    killed: int
    ended: int
    wrong: list[str]


def attack(task: tuple[str, int, int]) -> AttackReport:
    """Kill a command several times in a row in one folder, then let it run to its end."""
    name, kills, seed = task
    work, dice, killed, wrong = WORKS[name], random.Random(f"{name} {seed}"), 0, list[str]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "two.json").write_text(json.dumps(SCENARIO))
        for number in range(kills):
            mark = f"kill-{os.getpid()}-{name.replace(' ', '-')}-{seed}-{number}"
            process = begin(work.words, folder, mark)
            time.sleep(dice.uniform(0.05, work.seconds))
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait()
            found = [f"still there: {survivor}" for survivor in survivors(mark)]
            found += unreadable_files(folder)
            wrong += [f"{name}, kill {number} of seed {seed}: {line}" for line in found]
        wrong += [f"{name} of seed {seed}, left alone: {line}" for line in _goes_on(work, folder)]
    return AttackReport(name, killed, kills - killed, wrong)


def _goes_on(work: Work, folder: Path) -> Sequence[str]:
    """Run the command to its end, and return the faults."""
    began, mark = time.monotonic(), f"alone-{os.getpid()}-{id(folder)}"
    process = begin(work.words, folder, mark)
    try:
        ended: Ended = end(process, folder, began, SECONDS)
    except TimeoutError:
        return [f"longer than {SECONDS} s"]
    leftovers = [path.name for path in folder.rglob("*") if path.suffix in (".new", ".partial")]
    return [
        *faults(ended, work.codes),
        *([ended.err[-300:]] if ended.code not in work.codes else []),
        *(f"left behind: {name}" for name in leftovers),
        *(f"still there: {survivor}" for survivor in survivors(mark)),
        *unreadable_files(folder),
    ]


def unreadable_files(folder: Path) -> list[str]:
    """Return those files written by a command that cannot be read."""
    found = []
    for file in sorted(folder.rglob("*")):
        reader = READERS.get(file.suffix)
        if reader is None or not file.is_file() or ".hypothesis" in file.parts:
            continue
        try:
            reader(file)
        except (ValueError, FileError, OSError) as error:
            found.append(f"{file.relative_to(folder)}: {error!s:.200}")
    return found


def _read_json(file: Path) -> None:
    data = json.loads(file.read_text(encoding="utf-8"))
    if "requests" in data:
        read_scenario(file)


def _read_lines(file: Path) -> None:
    for line in file.read_bytes().split(b"\n")[:-1]:  # the last line may be truncated
        json.loads(line)


READERS: dict[str, Callable[[Path], None]] = {
    ".json": _read_json,
    ".ndjson": _read_lines,
}


def main() -> int:
    known = parser(__doc__, kills=600)
    known.add_argument("--only", choices=WORKS)
    options = known.parse_args()
    began, in_a_row = time.monotonic(), 5
    works = [options.only] if options.only else [*WORKS]
    rounds = max(options.kills // (in_a_row * len(works)), 1)
    tasks = [
        (name, in_a_row, options.seed * 1000 + number) for number in range(rounds) for name in works
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        reports = [*pool.map(attack, tasks)]
    lines = ["| command | killed | had ended | went wrong |", "|---|---|---|---|"]
    for name in works:
        of_it = [report for report in reports if report.work == name]
        counts = [sum(report.killed for report in of_it), sum(report.ended for report in of_it)]
        counts.append(sum(len(report.wrong) for report in of_it))
        lines.append(f"| `{name}` | {' | '.join(map(str, counts))} |")
    spent = f"in {time.monotonic() - began:.0f} s, {options.jobs} commands at a time"
    total = sum(report.killed for report in reports)
    whole = f"Each command also ran to its end {rounds} times."
    lines += ["", f"The attack made {total} kills {spent} (seed {options.seed}). {whole}"]
    wrong = [line for report in reports for line in report.wrong]
    return finish("kills", lines, wrong, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
