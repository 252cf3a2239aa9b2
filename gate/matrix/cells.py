"""Judge each release in each configuration by a gate in its own process.

Results are kept in a folder, so that running the command again resumes it.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..console import INCONCLUSIVE
from ..console.step_lines import one_line
from ..files.reading import FileError, decode_json
from ..files.writing import naming_file, write
from ..judging.verdict import Verdict
from ..processes.executors import DEATHS, make_executor, run_tasks
from ..processes.watchdog import run_watched
from ..targets.scales import Configuration, scales_of
from ..targets.target_spec import parse_target

EVERY = Configuration("every configuration", {})


class Cell(NamedTuple):
    """A release, NAME==VERSION, to judge in one configuration. With a `scheduler`, FILE.py:CLASS or
    DIR:PACKAGE.MODULE.CLASS, that class is judged against the release's own."""

    target: str
    configuration: Configuration
    profile: str
    seed: int
    scheduler: str = ""

    @property
    def title(self) -> str:
        return f"{self.target}, {self.configuration.name}"

    @property
    def words(self) -> list[str]:
        if not self.scheduler:
            return [self.target]
        return [f"{self.target}:{self.scheduler}", "--against-base"]

    @property
    def file_name(self) -> str:
        words = self.configuration.name.replace(",", "").replace(" ", "-")
        return f"{self.target.replace('==', '-')}-{words}"


class CellVerdict(NamedTuple):
    """A cell with its verdict, or one line that says why there is none."""

    cell: Cell
    verdict: Verdict | None
    problem: str = ""

    @property
    def is_judged(self) -> bool:
        return self.verdict is not None and self.verdict.exit_code != INCONCLUSIVE

    @property
    def outcome(self) -> str:
        rules = self.verdict.rules if self.verdict is not None else ()
        if broken := [rule.id for rule in rules if rule.status == "violated"]:
            return f"broken: {', '.join(broken)}"
        if self.is_judged:
            return "no rule is broken"
        fault = self.problem if self.verdict is None else self.verdict.fault
        return f"no verdict: {fault or 'inconclusive'}"


class GateRun(NamedTuple):
    """A finished gate: its return code, the files that it wrote (by relative path), and its time in
    seconds."""

    returned: int
    files: dict[str, bytes]
    seconds: float


def cells_of(targets: Sequence[str], profile: str, seed: int, scheduler: str = "") -> list[Cell]:
    """Return a cell for every release in every configuration of its system, or for each release if
    a `scheduler` is judged."""
    if scheduler:
        return [Cell(target, EVERY, profile, seed, scheduler) for target in targets]
    return [
        Cell(target, configuration, profile, seed)
        for target in targets
        for configuration in scales_of(parse_target(target).default_system).configurations
    ]


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    report: Callable[[CellVerdict, float], None],
    jobs: int = 1,
    cluster: str | None = None,
    work: Callable[[Cell], GateRun] | None = None,
) -> list[CellVerdict]:
    """Judge the cells that have no verdict in the folder, and return the verdicts of all, in order.

    A cell with a user's class is always judged again. `jobs` gates run at a time, or as many as the
    Dask cluster at this address has room for. `report` receives each cell with the seconds that it
    took, or 0 if its verdict comes from an earlier run. Ctrl-C keeps the verdicts so far.
    """
    for name in ("logs", "scenarios", "verdicts"):  # fail before the work, not after
        with naming_file(folder):
            (folder / name).mkdir(parents=True, exist_ok=True)
    # A user's class may have changed since an earlier run; a release never changes.
    verdicts = {
        cell.title: None if cell.scheduler else earlier_verdict(cell, folder) for cell in cells
    }
    judged = {cell.title: CellVerdict(cell, verdicts[cell.title]) for cell in cells}
    waiting = [cell for cell in cells if verdicts[cell.title] is None]
    for cell in cells:
        if cell not in waiting:
            report(judged[cell.title], 0.0)
    with make_executor(work or judge, jobs, cluster) as executor:
        for cell, ran in run_tasks(executor, waiting):
            result, seconds = CellVerdict(cell, None, f"its worker died {DEATHS} times"), 0.0
            if ran is not None:
                result, seconds = _store(cell, folder, ran.result), ran.result.seconds
            judged[cell.title] = result
            report(result, seconds)
    return [*judged.values()]


def earlier_verdict(cell: Cell, folder: Path) -> Verdict | None:
    verdict = _read(cell, folder)
    return verdict if verdict is not None and verdict.fault is None else None


def _read(cell: Cell, folder: Path) -> Verdict | None:
    try:
        data = (folder / "verdicts" / f"{cell.file_name}.json").read_bytes()
        verdict = decode_json(data, "", Verdict)
    except (OSError, FileError):
        return None
    same = (verdict.profile, verdict.seed) == (cell.profile, cell.seed)
    return verdict if same and not verdict.interrupted else None


def judge(cell: Cell) -> GateRun:
    began = time.monotonic()
    words = [
        word
        for key, value in cell.configuration.changes.items()
        for word in ("--config", f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "verdicts").mkdir()
        ran = run_watched(
            [
                *(sys.executable, "-P", "-m", "schedproof", "gate", *cell.words, *words),
                *("--profile", cell.profile, "--seed", str(cell.seed)),
                *("--out", str(folder / "scenarios" / cell.file_name)),
                *("--json", str(folder / "verdicts" / f"{cell.file_name}.json")),
            ],
            stderr=subprocess.STDOUT,
        )
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    files[f"logs/{cell.file_name}.txt"] = ran.stdout
    return GateRun(ran.returncode, files, time.monotonic() - began)


def scenario_of(judged: CellVerdict, rule: str) -> str:
    assert judged.verdict is not None
    paths = [verdict.scenario for verdict in judged.verdict.rules if verdict.id == rule]
    name = Path(paths[0]).name if paths and paths[0] else ""
    return name and f"scenarios/{judged.cell.file_name}/{name}"


def _store(cell: Cell, folder: Path, ran: GateRun) -> CellVerdict:
    for name, data in ran.files.items():
        path = folder / name
        with naming_file(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write(path, data)
    verdict = _read(cell, folder)
    if verdict is not None:
        return CellVerdict(cell, verdict)
    log = ran.files[f"logs/{cell.file_name}.txt"].decode(errors="replace").splitlines()
    lines = [line for line in log if line.startswith("schedproof: ")]
    code = f"the gate ended with code {ran.returned}"
    return CellVerdict(
        cell, None, one_line(lines[0].removeprefix("schedproof: ") if lines else code)
    )
