"""Does a command end with a one-line error if something that it relies on is missing or full?

Each command runs in each environment of `places.py`: without HOME, with stdout closed, on a full
disk and so on:

    make tool NAME=hostile.surroundings OPTIONS="--only 'a full disk'"
"""

import atexit
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from schedproof.gate.targets.releases import cache_folder

from .kills import SCENARIO, unreadable_files
from .places import PLACES, Place
from .processes import CODES, Ended, faults, survivors
from .processes import MARK as MARKED
from .report import finish, parser

SECONDS = 90
USAGE = 2
GIVEN = "given.json"
CLUSTER = "a Dask scheduler"
SMALL = ("--system", "vllm", "--rule", "ALL-R01", "--rule", "ALL-R03", "--time-limit", "60")
BAD = f"cmd:{sys.executable} {Path(__file__).with_name('bad_target.py')}"


class Work(NamedTuple):
    """A command, and the file that it writes, if any."""

    words: tuple[str, ...]
    makes: str = ""


WORKS = {
    "gate": Work(
        (*("gate", "model", "--profile", "quick", *SMALL), "--json", "verdict.json"),
        "verdict.json",
    ),
    "gate --jobs 2": Work(
        ("gate", "model", "--profile", "quick", *SMALL, "--jobs", "2", "--junit", "junit.xml"),
        "junit.xml",
    ),
    "gate of a process": Work(
        ("gate", f"{BAD} 'answers late' step 1000000", "--profile", "quick", *SMALL)
    ),
    "gate that finds": Work(
        (
            *("gate", f"{BAD} 'members that it never got' step 20", "--profile", "quick"),
            *("--system", "vllm", "--rule", "ALL-R03"),
        )
    ),
    "replay --trace": Work(("replay", GIVEN, "--trace", "trace.jsonl"), "trace.jsonl"),
    "show": Work(("show", GIVEN, "-o", "page.html"), "page.html"),
    "search": Work(("search", "SPY-R07", "--time-limit", "30")),
    "explore": Work(
        (
            *("explore", "--system", "vllm", "--scope", "slots", "--requests", "2"),
            *("--checkpoint", "put"),
        )
    ),
    "corpus add": Work(("corpus", "add", GIVEN, "--rule", "ALL-R06", "--corpus", "new")),
    "campaign": Work(
        ("campaign", "--system", "vllm", "--items", "2", "--workers", "1", "--ledger", "l.ndjson"),
        "l.ndjson",
    ),
    "campaign --cluster": Work(
        (
            *("campaign", "--system", "vllm", "--items", "2", "--ledger", "l.ndjson"),
            *("--cluster", CLUSTER),
        ),
        "l.ndjson",
    ),
    # The time limit ends this command halfway. If the release is not in the cache, it is installed
    # first.
    "matrix": Work(("matrix", "vllm==0.33.0", "--time-limit", "8", "--out", "m")),
    "diff --save": Work(
        ("diff", "model", "--system", "vllm", "--profile", "quick", "--save", "base.gz"),
        "base.gz",
    ),
    "doctor": Work(("doctor", "model", "--system", "vllm")),
    "rules": Work(("rules", "--system", "vllm")),
    "demo": Work(("demo",)),
}


class AttackReport(NamedTuple):
    """The result of a command in one environment."""

    place: str
    work: str
    code: int | None
    wrong: list[str]
    seconds: float


def attack(task: tuple[str, str, int]) -> AttackReport:
    """Run a command in an environment, in as many copies at once as the environment says."""
    where, name, seed = task
    place, work = PLACES[where], WORKS[name]
    mark = f"place-{os.getpid()}-{abs(hash(task))}"
    with _folder() as here:
        runs = [_begin(place, work, here, mark, random.Random(seed)) for _ in range(place.at_once)]
        ended = [_wait(*run) for run in runs]
        wrong = [line for end in ended for line in _wrong(end, place, name, here)]
        wrong += [f"still there: {survivor}" for survivor in survivors(mark)]
        shutil.rmtree(here, ignore_errors=True)
    about = f"{name}, {where}, seed {seed}"
    code = ended[0].code if ended[0] else None
    seconds = max((end.seconds for end in ended if end), default=SECONDS)
    return AttackReport(where, name, code, [f"{about}: {line}" for line in wrong], seconds)


@contextmanager
def _folder() -> Iterator[Path]:
    """Create an empty folder next to the scenario that the commands read."""
    with tempfile.TemporaryDirectory() as root:
        here = Path(root) / "here"
        here.mkdir()
        here.with_name(GIVEN).write_text(json.dumps(SCENARIO))
        yield here


def _begin(
    place: Place, work: Work, here: Path, mark: str, chance: random.Random
) -> tuple["subprocess.Popen[str]", float]:
    given: dict[str, Callable[[], str]] = {
        GIVEN: lambda: str(here.with_name(GIVEN)),
        CLUSTER: cluster,
    }
    words = [given[word]() if word in given else word for word in work.words]
    command = [sys.executable, "-m", "schedproof", *words]
    base = {**os.environ, MARKED: mark, "PYTHONDONTWRITEBYTECODE": "1"}
    base["SCHEDPROOF_CACHE"] = str(cache_folder())
    began = time.monotonic()
    return place.popen(command, here, base, chance), began


def _wait(process: "subprocess.Popen[str]", began: float) -> Ended | None:
    """Wait for a process. Return None if it had to be killed."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    return Ended(process.returncode, out or "", err or "", time.monotonic() - began)


def _wrong(ended: Ended | None, place: Place, name: str, here: Path) -> list[str]:
    if ended is None:
        return [f"longer than {SECONDS} s"]
    usual, makes = usually(name), WORKS[name].makes
    found = faults(ended, CODES)
    if "Traceback" in ended.err or "Exception ignored" in ended.err:
        found.append(f"a traceback: {ended.err[-400:]!r}")
    if ended.code != usual and not (place.stops and ended.code in (USAGE, place.also)):
        found.append(f"exit code {ended.code}, but {usual} elsewhere: {ended.err[-300:]!r}")
    if ended.code == USAGE and not _last(ended).startswith("schedproof: "):
        found.append(f"not an error of schedproof: {ended.err[-300:]!r}")
    if makes and ended.code == usual and not [*here.rglob(makes)]:
        found.append(f"exit code {ended.code}, and no {makes}")
    found += unreadable_files(here)
    found += [
        f"left behind: {path.name}"
        for path in here.rglob("*")
        if path.suffix in (".new", ".partial", ".tmp")
    ]
    return found


def _last(ended: Ended) -> str:
    return (ended.err.splitlines() or [""])[-1]


@cache
def cluster() -> str:
    """Start a Dask scheduler with a worker in a normal environment, and return its address."""
    from distributed import LocalCluster

    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    local = LocalCluster(**options)
    atexit.register(local.close)
    return str(local.scheduler_address)


@cache
def usually(name: str) -> int:
    """Return the exit code of a command in a normal environment."""
    with _folder() as here:
        ended = _wait(
            *_begin(PLACES["nothing unusual"], WORKS[name], here, "usual", random.Random(0))
        )
        assert ended is not None
        assert ended.code in CODES, ended
        return ended.code


def main() -> int:
    """Run every command in every environment, and print a table. Return the number of faults."""
    known = parser(__doc__)
    known.add_argument("--only", choices=PLACES)
    options = known.parse_args()
    began = time.monotonic()
    places = (
        [options.only] if options.only else [each for each in PLACES if PLACES[each].is_available()]
    )
    tasks = [(place, name, options.seed) for place, name in itertools.product(places, WORKS)]
    with ThreadPoolExecutor(options.jobs) as pool:
        reports = [*pool.map(attack, tasks)]
    lines = ["| surroundings | commands | as usual | refused | went wrong | slowest |"]
    lines.append("|" + "---|" * 6)
    for place in places:
        of_it = [report for report in reports if report.place == place]
        counts = Counter(
            "wrong"
            if report.wrong
            else "usual"
            if report.code == usually(report.work)
            else "refused"
            for report in of_it
        )
        cells = [place, len(of_it), counts["usual"], counts["refused"], counts["wrong"]]
        slowest = max(report.seconds for report in of_it)
        lines.append(f"| {' | '.join(map(str, cells))} | {slowest:.0f} s |")
    spent = f"in {time.monotonic() - began:.0f} s, {options.jobs} at a time"
    lines += ["", f"{len(reports)} commands {spent} (seed {options.seed})."]
    wrong = [line for report in reports for line in report.wrong]
    return finish("surroundings", lines, wrong, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
