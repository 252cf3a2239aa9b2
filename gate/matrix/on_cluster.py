"""Cells on the workers of a Dask cluster: each is a gate there, and its files come back."""

import queue
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..campaign.executors import check_code, code
from ..files.writing import told, write
from ..processes.cluster import Connection, WorkerLost
from .cells import Asked, Cell, Judged, ended, kept, start
from .run import Report

LOSSES = 5  # a cell that has cost so many workers is given up
GLANCE = 0.5  # seconds between two looks at what runs


class Ran(NamedTuple):
    """A gate that has ended on a worker: its return code, what it wrote by path from its folder on,
    its seconds, and by which code it judged."""

    returned: int
    files: dict[str, bytes]
    seconds: float
    code: str


def judge(cell: Cell, profile: str, seed: int) -> Ran:
    """Judge a cell here, on a worker."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        process = start(cell, Asked(profile, seed, Path(folder)))
        try:
            process.wait()
        finally:
            process.end()
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }
    return Ran(process.returncode, files, time.monotonic() - began, code())


def run_on_cluster(
    cells: Sequence[Cell],
    asked: Asked,
    address: str,
    report: Report,
    work: Callable[[Cell, str, int], Ran] = judge,
) -> list[Judged]:
    """As `run_cells`, on the cluster at this address. A cell whose worker is lost runs again.

    Raises:
        InputError: Dask is not installed, or no scheduler answers.
        ClusterError: the scheduler is gone, or a worker has another schedproof; what was judged
            until then is kept.
        FileError: the folder cannot be written to.
    """
    results = {cell: there for cell in cells if (there := kept(cell, asked)) is not None}
    connection = Connection(address)
    done: queue.SimpleQueue[tuple[Cell, Any]] = queue.SimpleQueue()

    def submit(cell: Cell) -> None:
        words = (cell, asked.profile, asked.seed)
        connection.submit(lambda future: done.put((cell, future)), work, *words)

    try:
        for there in results.values():
            report(there, 0.0)
        open_cells = dict.fromkeys((cell for cell in cells if cell not in results), 0)
        for cell in open_cells:
            submit(cell)
        while open_cells:
            try:
                cell, future = done.get(timeout=GLANCE)
            except queue.Empty:
                connection.check()
                continue
            try:
                ran: Ran = connection.result(future)
            except WorkerLost:
                open_cells[cell] += 1
                if open_cells[cell] < LOSSES:
                    submit(cell)
                    continue
                result, seconds = Judged(cell, None, f"it has cost {LOSSES} workers"), 0.0
            else:
                result, seconds = _taken(cell, asked, ran, address), ran.seconds
            results[cell] = result
            del open_cells[cell]
            report(result, seconds)
    finally:
        connection.close()
    return [results[cell] for cell in cells]


def _taken(cell: Cell, asked: Asked, ran: Ran, address: str) -> Judged:
    """What a worker found, its files in our folder."""
    check_code(ran.code, f"{address}: a worker")
    for name, data in ran.files.items():
        path = asked.folder / name
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write(path, data)
    return ended(cell, asked, ran.returned)
