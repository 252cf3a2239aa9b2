"""One release in one configuration, judged by a gate in a process of its own.

What a gate found is kept in a file, so that the same command goes on where it was stopped.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..console.sanitize import one_line
from ..files.scenario_file import FileError
from ..judging.verdict import Verdict
from ..processes.watchdog import WatchedProcess
from ..targets.target_spec import parse_target
from .configurations import Configuration, configurations_of


@dataclass(frozen=True)
class Asked:
    """What all gates are asked: the profile, the seed, and the folder for what they find."""

    profile: str
    seed: int
    folder: Path


class Cell(NamedTuple):
    """A release, NAME==VERSION, in a configuration."""

    target: str
    configuration: Configuration

    @property
    def title(self) -> str:
        """The words for a user."""
        return f"{self.target}, {self.configuration.name}"

    @property
    def file_name(self) -> str:
        """The words for a user, without what no file name may have."""
        words = self.configuration.name.replace(",", "").replace(" ", "-")
        return f"{self.target.replace('==', '-')}-{words}"


class Judged(NamedTuple):
    """A cell with the verdict on it, or the line that says why there is none."""

    cell: Cell
    verdict: Verdict | None
    problem: str = ""


def cells_of(targets: list[str]) -> list[Cell]:
    """Every release in every configuration of its system.

    Raises:
        UnknownTargetError, ReleaseError: there is no such release.
    """
    return [
        Cell(target, configuration)
        for target in targets
        for configuration in configurations_of(parse_target(target).default_system)
    ]


def kept(cell: Cell, asked: Asked) -> Judged | None:
    """What an earlier run found for the same profile and seed; None where there is nothing, or
    nothing that can be read."""
    try:
        data = _verdict_file(cell, asked).read_bytes()
        verdict = msgspec.json.decode(data, type=Verdict)
    except (OSError, msgspec.DecodeError):
        return None
    same = (verdict.profile, verdict.seed) == (asked.profile, asked.seed)
    return Judged(cell, verdict) if same and not verdict.interrupted else None


def gate_command(cell: Cell, asked: Asked) -> list[str]:
    """The gate that judges a cell."""
    changes = [word for change in cell.configuration.changes for word in ("--set", change)]
    return [
        *(sys.executable, "-m", "schedproof", "gate", cell.target, *changes),
        *("--profile", asked.profile, "--seed", str(asked.seed)),
        *("--out", str(asked.folder / "scenarios" / cell.file_name)),
        *("--json", str(_verdict_file(cell, asked))),
    ]


def start(cell: Cell, asked: Asked) -> WatchedProcess:
    """Begin to judge a cell, in a process group of its own, which Ctrl-C does not reach. What the
    gate prints is kept.

    Raises:
        FileError: the folder cannot be written to.
    """
    log = _log_file(cell, asked)
    try:
        for file in (log, _verdict_file(cell, asked)):
            file.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "wb") as printed:
            return WatchedProcess(
                gate_command(cell, asked),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
    except OSError as error:
        raise FileError(f"{log}: cannot be written to ({error.strerror})") from None


def ended(cell: Cell, asked: Asked, code: int) -> Judged:
    """What a gate that has ended found."""
    judged = kept(cell, asked)
    if judged is not None:
        return judged
    printed = _log_file(cell, asked).read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line for line in printed if line.startswith("schedproof: ")]
    why = lines[0].removeprefix("schedproof: ") if lines else f"the gate ended with code {code}"
    return Judged(cell, None, one_line(why))


def _verdict_file(cell: Cell, asked: Asked) -> Path:
    return asked.folder / "verdicts" / f"{cell.file_name}.json"


def scenario_of(judged: Judged, rule: str) -> str | None:
    """The scenario that breaks a rule, from the folder on, in forward slashes."""
    assert judged.verdict is not None
    found = next((one.scenario for one in judged.verdict.rules if one.id == rule), None)
    return None if found is None else f"scenarios/{judged.cell.file_name}/{Path(found).name}"


def _log_file(cell: Cell, asked: Asked) -> Path:
    return asked.folder / "logs" / f"{cell.file_name}.txt"
