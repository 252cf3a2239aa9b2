"""Does the gate of a misbehaving target end in time, with clean output and no process left behind?

The target behaves until the Nth call of an operation. In some runs, a signal interrupts the gate:

    make tool NAME=hostile.targets OPTIONS="--runs 45"
"""

import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .bad_target import MISDEEDS
from .processes import Ended, begin, end, faults, survivors
from .report import finish, parser

SECONDS = 60  # seconds that a gate may take; its own limit is TIME_LIMIT
TIME_LIMIT = 10
OPERATIONS = ("start", "add", "abort", "step", "stop")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RULES = "ALL-R01,ALL-R02,ALL-R03,ALL-R04"
ALLOWED = {"out.txt", "err.txt", "out", "left.txt", ".hypothesis"}


class AttackReport(NamedTuple):
    """The result of one gate."""

    misdeed: str
    how: str
    wrong: list[str]
    seconds: float


def attack(seed: int) -> AttackReport:
    """Judge a target that misbehaves in one way in one operation. A signal may interrupt the
    gate."""
    dice = random.Random(seed)
    misdeed = [*MISDEEDS][seed % len(MISDEEDS)]
    operation = dice.choice(OPERATIONS)
    nth = 1 if dice.random() < 0.5 else dice.randint(2, 60)
    jobs = dice.choice(("1", "1", "2"))
    number = dice.choice(SIGNALS) if dice.random() < 0.3 else None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "here")
        folder.mkdir()
        bad = [sys.executable, str(Path(__file__).with_name("bad_target.py"))]
        command = shlex.join([*bad, misdeed, operation, str(nth)])
        words = ["gate", f"cmd:{command}", "--system", "vllm", "--profile", "quick"]
        words += ["--step-limit", "0.5", "--memory-limit", "400", "--jobs", jobs, "--github"]
        words += ["--time-limit", str(TIME_LIMIT), "--out", "out", "--rule", RULES]
        began, mark = time.monotonic(), f"target-{os.getpid()}-{seed}"
        process = begin(words, folder, mark)
        if number is not None:
            time.sleep(dice.uniform(0.2, 4.0))
            process.send_signal(number)
        try:
            ended: Ended | None = end(process, folder, began, SECONDS)
        except TimeoutError:
            ended = None
        wrong = [] if ended is None else faults(ended, _codes(number))
        wrong += [] if ended is not None else [f"longer than {SECONDS} s"]
        wrong += [f"still there: {survivor}" for survivor in survivors(mark)]
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        wrong += [f"left in the folder: {name}" for name in sorted(names - ALLOWED)]
        how = "ended by a signal" if number is not None else _how(ended)
        place = f"{misdeed}, {operation} {nth}, --jobs {jobs}, {number!r}"
        wrong = [f"{seed}: {place}: {line}" for line in wrong]
        return AttackReport(misdeed, how, wrong, time.monotonic() - began)


def _codes(number: signal.Signals | None) -> tuple[int, ...]:
    return (0, 1, 2, 3) if number is None else (0, 1, 2, 3, -number)


def _how(ended: Ended | None) -> str:
    words = {0: "conforms", 1: "broken", 2: "refused", 3: "inconclusive"}
    return "too long" if ended is None else words.get(ended.code, "else")


def main() -> int:
    options = parser(__doc__, runs=450).parse_args()
    began = time.monotonic()
    seeds = range(options.seed * 10**6, options.seed * 10**6 + options.runs)
    with ThreadPoolExecutor(options.jobs) as pool:
        reports = [*pool.map(attack, seeds)]
    hows = ("conforms", "broken", "refused", "inconclusive", "ended by a signal")
    lines = [f"| misdeed | gates | {' | '.join(hows)} | went wrong | slowest |"]
    lines.append("|" + "---|" * (len(hows) + 4))
    for misdeed in MISDEEDS:
        of_it = [report for report in reports if report.misdeed == misdeed]
        counts = Counter(report.how for report in of_it)
        wrong, slowest = (
            sum(bool(report.wrong) for report in of_it),
            max(report.seconds for report in of_it),
        )
        cells = [misdeed, str(len(of_it)), *(str(counts[how]) for how in hows), str(wrong)]
        lines.append(f"| {' | '.join(cells)} | {slowest:.0f} s |")
    spent = f"in {time.monotonic() - began:.0f} s, {options.jobs} at a time"
    lines += ["", f"{len(reports)} gates {spent} (seed {options.seed})."]
    wrong_lines = [line for report in reports for line in report.wrong]
    return finish("targets", lines, wrong_lines, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
