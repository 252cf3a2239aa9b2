"""Does every command that reads a corrupted file end with a verdict or with one line?

Each command runs in its own process:

    make tool NAME=hostile.commands OPTIONS="--inputs 200"
"""

import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.cli import app
from schedproof.gate.console import interrupts

from .loaders import LOADERS, LOADS, good
from .processes import Ended, faults
from .report import finish, parser

SECONDS = 30
MEGABYTES = 6144
USAGE = 2
QUICK = ("--profile", "quick", "--rule", "ALL-R01", "--time-limit", "1", "--out", "out")
# The commands that read each kind of file; {} stands for the file.
COMMANDS = {
    "two.json": (
        ("replay", "{}", "--quiet", "--time-limit", "5"),
        ("show", "{}", "-o", "page.html", "--time-limit", "5"),
        ("corpus", "add", "{}", "--rule", "SPY-R35", "--corpus", "new"),
        ("corpus", "minimize", "{}", "--time-limit", "5"),
    ),
    "corpus/two.json": (
        ("corpus", "run", "--corpus", "corpus", "--time-limit", "5"),
        ("corpus", "list", "--corpus", "corpus"),
        ("corpus", "export", "--as", "pytest", "--target", "model", "--corpus", "corpus"),
        ("gate", "model", "--corpus", "corpus", *QUICK),
    ),
    "known.toml": (("gate", "model", "--deviations", "{}", *QUICK),),
    "pyproject.toml": (("rules",), ("gate", *QUICK)),
    "trace.jsonl": (("check-trace", "{}", "--explain"), ("show", "{}", "-o", "page.html")),
    "trace.jsonl.gz": (("check-trace", "{}"),),
    "baseline.gz": (("diff", "model", "--since", "{}", "--out", "out", "--time-limit", "5"),),
    "ledger.ndjson": (("campaign", "--ledger", "{}", "--report", "--out", "out"),),
    "ours.py": (
        ("gate", "model", "--extra-rules", "{}", *QUICK),
        ("replay", "two.json", "--extra-rules", "{}"),
    ),
    **{f"{form}.load": (("import", form, "{}", "--out", "load.json"),) for form in LOADS},
}


class AttackReport(NamedTuple):
    """The result of one command."""

    command: str
    code: int
    wrong: list[str]
    seconds: float


def attack(task: tuple[str, Mapping[str, bytes], int]) -> AttackReport:
    kind, files, seed = task
    words = random.Random(seed).choice(COMMANDS[kind])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, whole in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            if name != "pyproject.toml":
                (folder / name).write_bytes(whole)
        LOADERS[kind].spoil(folder / kind, files[kind], seed)
        arguments = [word.replace("{}", kind) for word in words]
        ended = run_in_fork(lambda: app.run(words=arguments), folder)
        wrong = faults(ended)
        lines = ended.err.splitlines()
        if ended.seconds > SECONDS:
            wrong.append(f"{ended.seconds:.0f} s")
        if ended.code == USAGE and kind != "pyproject.toml" and len(lines) != 1:
            wrong.append(f"{len(lines)} lines: {ended.err[-300:]!r}")
        if ended.code == USAGE and not lines[-1].startswith("schedproof: "):
            wrong.append(f"not an error of schedproof: {lines[-1]!r}")
        wrong = [f"{kind}, input {seed}: {' '.join(arguments)}: {line}" for line in wrong]
        return AttackReport(
            " ".join(words[:2]).removesuffix(" {}"), ended.code, wrong, ended.seconds
        )


def run_in_fork(work: Callable[[], int], folder: Path) -> Ended:
    """Do the work in the folder, in a forked process. Return its output and how it ended."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 70  # the exit code for an uncaught error
        try:
            _alone(folder)
            code = work()
        except SystemExit as left:
            code = int(left.code or 0)
        except KeyboardInterrupt:  # the time limit raised it after the work was done
            code = 3
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    texts = [
        (folder / name).read_bytes().decode(errors="backslashreplace")
        for name in ("out.txt", "err.txt")
    ]
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, texts[0], texts[1], time.monotonic() - began)


def _alone(folder: Path) -> None:
    """Give this process its own folder, streams, signals and limits."""
    os.chdir(folder)
    for number, name in ((1, "out.txt"), (2, "err.txt")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.install()


def attacked(inputs: int, seed: int, jobs: int) -> list[AttackReport]:
    """Run this many commands, divided evenly among the kinds of files."""
    files = good()
    kinds = [*COMMANDS]
    tasks = [(kinds[number % len(kinds)], files, seed * 10**9 + number) for number in range(inputs)]
    with ThreadPoolExecutor(jobs) as pool:
        return [*pool.map(attack, tasks)]


def main() -> int:
    options = parser(__doc__, inputs=2_000).parse_args()
    began = time.monotonic()
    reports = attacked(options.inputs, options.seed, options.jobs)
    codes = range(4)
    lines = ["| command | inputs | exit 0 | 1 | 2 | 3 | went wrong | slowest |"]
    lines.append("|" + "---|" * 8)
    for command in sorted({report.command for report in reports}):
        of_it = [report for report in reports if report.command == command]
        counts = Counter(report.code for report in of_it)
        wrong, slowest = (
            sum(bool(report.wrong) for report in of_it),
            max(report.seconds for report in of_it),
        )
        cells = [f"`{command}`", len(of_it), *(counts[code] for code in codes), wrong]
        lines.append(f"| {' | '.join(map(str, cells))} | {slowest:.1f} s |")
    spent = f"in {time.monotonic() - began:.0f} s, {options.jobs} at a time"
    lines += ["", f"{len(reports):,} commands {spent} (seed {options.seed})."]
    wrong_lines = [line for report in reports for line in report.wrong]
    return finish("commands", lines, wrong_lines, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
