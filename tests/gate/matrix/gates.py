"""Gates that judge nothing, for the processes that run them."""

import os
from pathlib import Path

import msgspec

from schedproof import __version__
from schedproof.gate.judging.verdict import TargetInfo, Verdict
from schedproof.gate.matrix.cells import Cell, GateRun


def conforms(cell: Cell) -> GateRun:
    verdict = Verdict(
        TargetInfo(cell.target, "spyre", "1"),
        *("spyre", "documented", cell.profile, cell.seed, ()),
        rules=(),
        findings=(),
        exit_code=0,
        schedproof=__version__,
        config=dict(cell.configuration.changes),
    )
    files = {
        f"logs/{cell.file_name}.txt": b"conforms\n",
        f"verdicts/{cell.file_name}.json": msgspec.json.encode(verdict),
    }
    return GateRun(0, files, 1.5)


def dies_once(cell: Cell) -> GateRun:
    mark = Path(cell.configuration.changes["mark"])
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return GateRun(1, {f"logs/{cell.file_name}.txt": b"schedproof: it ran\n"}, 1.0)


def refuses(cell: Cell) -> GateRun:
    said = b"schedproof: mine.py has no class 'Mine'\n"
    return GateRun(2, {f"logs/{cell.file_name}.txt": said}, 1.0)
