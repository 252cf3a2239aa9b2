"""Judge each release in each configuration, with one gate in its own process.

Results are kept in a folder, so that the same command can be run again to resume. The matrix shows
which releases break which rules. It is written as data (`schedproof/matrix@1`) and as a page.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from ..console import INCONCLUSIVE
from ..console.step_lines import one_line
from ..files.disk import FileError, decode_json, name_file_in_errors, write
from ..judging.verdict import RuleVerdict, Verdict
from ..processes.executors import DEATHS, make_executor, our_code, run_tasks
from ..processes.scratch import scratch_folder
from ..processes.watchdog import run_watched
from ..reports.markdown import escaped
from ..targets.scales import Configuration, scales_of
from ..targets.target_spec import parse_target

EVERY = Configuration("every configuration", {})


class Cell(NamedTuple):
    """A release, NAME==VERSION, to judge in one configuration. If `scheduler` names a class, as
    FILE.py:CLASS or DIR:PACKAGE.MODULE.CLASS, it is judged against the release's own class.
    `settings` identifies what the project file changes in the gate. It is part of the names of the
    gate's files, so that a verdict given under other settings is never reused."""

    target: str
    configuration: Configuration
    profile: str
    seed: int
    scheduler: str = ""
    settings: str = ""

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
        settings = f"-{self.settings}" if self.settings else ""
        return f"{self.target.replace('==', '-')}-{words}{settings}"


class CellVerdict(NamedTuple):
    """A cell with its verdict, or with one line that says why there is none."""

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
    """A finished gate: its return code, the files that it wrote, and its duration in seconds."""

    returned: int
    files: dict[str, bytes]
    seconds: float


def cells_of(
    targets: Sequence[str],
    profile: str,
    seed: int,
    scheduler: str = "",
    settings_of: Callable[[str], str] = lambda _system: "",
) -> list[Cell]:
    """Return a cell for each release and configuration. With a `scheduler`, return one for each
    release. `settings_of` identifies what the project file changes in the gates of a system."""
    cells = []
    for target in targets:
        system = parse_target(target).default_system
        configurations = [EVERY] if scheduler else scales_of(system).configurations
        about = (profile, seed, scheduler, settings_of(system))
        cells += [Cell(target, configuration, *about) for configuration in configurations]
    return cells


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    report: Callable[[CellVerdict, float], None],
    jobs: int = 1,
    cluster: str | None = None,
    work: Callable[[Cell], GateRun] | None = None,
) -> list[CellVerdict]:
    """Judge the cells that have no verdict in the folder yet. Return the verdicts of all cells, in
    order.

    A cell with a user's class is always judged again. Gates run `jobs` at a time, or as many as the
    Dask cluster at this address has room for. `report` receives the verdict of each cell and its
    duration in seconds, or 0 if it comes from an earlier run. Ctrl-C keeps the verdicts so far.
    """
    # Fail before the gates run rather than afterwards.
    for name in ("logs", "scenarios", "verdicts"):
        with name_file_in_errors(folder):
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
    """Return the verdict that an earlier run stored, if this code of schedproof gave it. Other code
    may have other rules, even in a checkout with the same version number."""
    verdict = _read(cell, folder)
    if verdict is None or verdict.fault is not None or _code_of(cell, folder) != our_code():
        return None
    judged = (verdict.target.spec, verdict.system, verdict.config, verdict.base)
    system = parse_target(cell.target).default_system
    meant = (cell.target, system, dict(cell.configuration.changes), None)
    return verdict if judged == meant else None


def _code_of(cell: Cell, folder: Path) -> str:
    """Return the digest of the code that gave the stored verdict, or "" if it is unknown."""
    try:
        return (folder / "verdicts" / f"{cell.file_name}.code").read_text("ascii", "replace")
    except OSError:
        return ""


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
    with scratch_folder() as scratch:
        folder = scratch / "results"
        (folder / "verdicts").mkdir(parents=True)
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
        with name_file_in_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write(path, data)
    name = f"verdicts/{cell.file_name}.json"
    if name not in ran.files:  # otherwise the verdict of an earlier gate would pass as this gate's
        with name_file_in_errors(folder / name):
            (folder / name).unlink(missing_ok=True)
    # Last, so that a matrix killed before it judges the cell again.
    write(folder / "verdicts" / f"{cell.file_name}.code", our_code().encode())
    verdict = _read(cell, folder)
    if verdict is not None:
        return CellVerdict(cell, verdict)
    log = ran.files[f"logs/{cell.file_name}.txt"].decode(errors="replace").splitlines()
    lines = [line for line in log if line.startswith("schedproof: ")]
    code = f"the gate ended with code {ran.returned}"
    return CellVerdict(
        cell, None, one_line(lines[0].removeprefix("schedproof: ") if lines else code)
    )


FORMAT = "schedproof/matrix@1"
BROKEN: Literal["violated"] = "violated"


class Releases(NamedTuple):
    """Consecutive releases of one package, from `first` to `last`."""

    first: str
    last: str

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Row(msgspec.Struct, frozen=True):
    """A rule that some release breaks in one configuration.

    `states` maps each version to the status of the rule. `broken` lists the releases that break the
    rule. `scenario` is the smallest run that breaks it.
    """

    name: str
    configuration: str
    rule: str
    states: Mapping[str, str]
    broken: tuple[Releases, ...]
    scenario: str
    version: str
    message: str
    known: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One release in one configuration: how many rules held and how many were broken, or why it
    has no verdict."""

    name: str
    version: str
    configuration: str
    held: int = 0
    broken: int = 0
    inconclusive: int = 0
    problem: str = ""


class Matrix(msgspec.Struct, frozen=True):
    """The results of all gates."""

    profile: str
    seed: int
    entries: tuple[Entry, ...]
    rows: tuple[Row, ...]
    format: str = FORMAT


def matrix_of(judged: Sequence[CellVerdict], profile: str, seed: int) -> Matrix:
    """Return the matrix of these cells. The releases of each package must be in order, oldest
    first."""
    by_kind: dict[tuple[str, str], list[CellVerdict]] = {}
    for result in judged:
        name, _, configuration = _place(result)
        by_kind.setdefault((name, configuration), []).append(result)
    rows: list[Row] = []
    for results in by_kind.values():
        rows += _rows([result for result in results if result.verdict is not None])
    return Matrix(profile, seed, tuple(_entry(result) for result in judged), tuple(rows))


def page_of(
    matrix: Matrix, command: str, note: str = "", unfinished: str = "", missing: int = 0
) -> str:
    """Return the matrix as a page. If some gates did not end, `missing` is their number, and
    `unfinished` says why."""
    environment = Environment(
        loader=PackageLoader("schedproof.gate.matrix", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Markdown, not HTML
    )
    environment.filters["cell"] = escaped
    return environment.get_template("page.md.jinja").render(
        matrix=matrix, command=command, note=note, unfinished=unfinished, missing=missing
    )


def spans(states: Mapping[str, str]) -> tuple[Releases, ...]:
    """Return the ranges of releases that break the rule. A release that did not exercise the
    rule does not interrupt a range."""
    exercised = [(version, state) for version, state in states.items() if state != "not_exercised"]
    groups = groupby(exercised, key=lambda release: release[1] == BROKEN)
    broken = [[version for version, _ in group] for is_broken, group in groups if is_broken]
    return tuple(Releases(versions[0], versions[-1]) for versions in broken)


def _rows(judged: Sequence[CellVerdict]) -> list[Row]:
    states: dict[str, dict[str, str]] = {}
    breaks: dict[str, list[tuple[tuple[int, int], CellVerdict, RuleVerdict]]] = {}
    for number, result in enumerate(judged):
        assert result.verdict is not None
        sizes = {finding.scenario: finding.requests for finding in result.verdict.findings}
        for rule in result.verdict.rules:
            states.setdefault(rule.id, {})[_place(result)[1]] = rule.status
            if rule.status == BROKEN:
                order = (sizes.get(rule.scenario or "", 10**6), number)
                breaks.setdefault(rule.id, []).append((order, result, rule))
    rows = []
    for name in states:
        if name not in breaks:
            continue
        _, where, smallest = min(breaks[name], key=lambda entry: entry[0])
        release, version, configuration = _place(where)
        rows.append(
            Row(
                *(release, configuration, name, states[name], spans(states[name])),
                scenario=scenario_of(where, name),
                version=version,
                message=smallest.message or "",
                known=next((rule.divergence for *_, rule in breaks[name] if rule.divergence), None),
            )
        )
    return rows


def _entry(judged: CellVerdict) -> Entry:
    if judged.verdict is None:
        return Entry(*_place(judged), problem=judged.problem)
    counts = Counter(rule.status for rule in judged.verdict.rules)
    return Entry(
        *(*_place(judged), counts["held"], counts[BROKEN], counts["inconclusive"]),
        problem=judged.verdict.fault or "",
    )


def _place(judged: CellVerdict) -> tuple[str, str, str]:
    name, _, version = judged.cell.target.partition("==")
    return name, version, judged.cell.configuration.name
