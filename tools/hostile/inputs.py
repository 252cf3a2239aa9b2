"""Is every corrupted file either read, or refused with one line that names the file?

Corrupts files of every kind at random and passes them to their loaders, in this process:

    make tool NAME=hostile.inputs OPTIONS="--inputs 10000"
"""

import multiprocessing
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.gate.console.step_lines import one_line
from schedproof.gate.files.scenario_file import FileError
from schedproof.model.errors import InputError
from schedproof.spec.catalogue import CatalogueError

from .loaders import LOADERS, good, name_of_checkpoint
from .report import finish, parser

SECONDS = 5  # seconds for loading one input
MEGABYTES = 4096
LETTERS = 2_000  # how many characters a refusal may have
BATCH = 500


class AttackReport(NamedTuple):
    """The results of some inputs of one kind: counts, the slowest time, and what went wrong."""

    kind: str
    counts: Counter[str]
    slowest: float
    wrong: list[str]


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer than this."""

    def over(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(kind: str, path: Path) -> str:
    """Load a file. Return "read", "refused", or a description of the fault."""
    try:
        with bounded(SECONDS):
            LOADERS[kind].read(path)
    except (FileError, InputError, CatalogueError) as error:
        words = one_line(str(error))  # as it would be printed
        if "\n" in words or not words.isprintable():
            return f"not one printable line: {words!r:.200}"
        if len(words) > LETTERS:
            return f"{len(words)} letters"
        if (
            not isinstance(error, InputError)
            and path.name not in words
            and str(path.parent) not in words
        ):
            return f"does not name the file: {words:.200}"
        return "refused"
    except TimeoutError:
        return f"longer than {SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.200}"
    return "read"


def batch(task: tuple[str, bytes, int, int]) -> AttackReport:
    """Load `many` corrupted inputs of one kind, beginning with number `first`."""
    kind, whole, first, many = task
    counts, wrong, slowest = Counter[str](), list[str](), 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = good_beside(folder)
        path = folder / kind if kind != "later.exploration" else folder / "put" / files
        path.parent.mkdir(exist_ok=True)
        for seed in range(first, first + many):
            LOADERS[kind].spoil(path, whole, seed)
            began = time.monotonic()
            what = outcome(kind, path)
            slowest = max(slowest, time.monotonic() - began)
            right = what in ("read", "refused")
            counts[what if right else "wrong"] += 1
            if not right and len(wrong) < 5:
                wrong.append(f"{kind}, input {seed}: {what}")
    return AttackReport(kind, counts, slowest, wrong)


def good_beside(folder: Path) -> str:
    """Write the uncorrupted files to the folder. Return the file name of the checkpoint."""
    for name, whole in GOOD.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(whole)
    (folder / "put").mkdir(exist_ok=True)
    return name_of_checkpoint(folder / "put")


GOOD: dict[str, bytes] = {}


def begin(files: Mapping[str, bytes]) -> None:
    """Prepare a worker process: store the uncorrupted files, and limit its memory."""
    GOOD.update(files)
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))


def attacked(inputs: int, seed: int, jobs: int) -> tuple[dict[str, AttackReport], int]:
    """Load this many corrupted inputs, divided among the kinds. Return the results by kind, and
    the peak memory in MB."""
    files = good()
    each = max(inputs // len(LOADERS), 1)
    tasks = [
        (kind, files[kind], seed * 10**9 + start, min(BATCH, each - start))
        for kind in LOADERS
        for start in range(0, each, BATCH)
    ]
    reports: dict[str, AttackReport] = {}
    fork = multiprocessing.get_context("fork")
    with fork.Pool(jobs, begin, (files,), maxtasksperchild=20) as pool:
        for report in pool.imap_unordered(batch, tasks):
            before = reports.get(report.kind, AttackReport(report.kind, Counter(), 0.0, []))
            reports[report.kind] = AttackReport(
                report.kind,
                before.counts + report.counts,
                max(before.slowest, report.slowest),
                (before.wrong + report.wrong)[:20],
            )
    return reports, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


def main() -> int:
    options = parser(__doc__, inputs=1_000_000).parse_args()
    began = time.monotonic()
    reports, megabytes = attacked(options.inputs, options.seed, options.jobs)
    lines = ["| file | inputs | read | refused in one line | went wrong | slowest |"]
    lines.append("|---|---|---|---|---|---|")
    for kind in LOADERS:
        report = reports[kind]
        read, refused, wrong = (report.counts[word] for word in ("read", "refused", "wrong"))
        row: tuple[str | int, ...] = (f"`{kind}`", read + refused + wrong, read, refused, wrong)
        cells = [f"{cell:,}" if isinstance(cell, int) else cell for cell in row]
        lines.append(f"| {' | '.join(cells)} | {report.slowest:.2f} s |")
    spent = f"{time.monotonic() - began:.0f} s and at most {megabytes} MB per process"
    lines += ["", f"The attack took {spent} (seed {options.seed}, with `--jobs {options.jobs}`)."]
    wrong_lines = [line for kind in LOADERS for line in reports[kind].wrong]
    return finish("inputs", lines, wrong_lines, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
