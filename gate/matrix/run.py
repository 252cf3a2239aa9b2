"""All cells, several at a time; what is there already is not judged again."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ..processes.watchdog import WatchedProcess
from .cells import Asked, Cell, Judged, ended, kept, start

PATIENCE = 10.0  # seconds for a gate to end, and its target
GLANCE = 0.1  # seconds between two looks at what runs

Report = Callable[[Judged, float], None]


def run_cells(cells: Sequence[Cell], asked: Asked, jobs: int, report: Report) -> list[Judged]:
    """Judge every cell, at most `jobs` at a time; `report` gets each with its seconds, 0 where it
    was kept. In the order of the cells.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was judged until then is kept.
    """
    results = {cell: there for cell in cells if (there := kept(cell, asked)) is not None}
    for there in results.values():
        report(there, 0.0)
    waiting = [cell for cell in cells if cell not in results]
    with _running() as running:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running[cell] = (start(cell, asked), time.monotonic())
            time.sleep(GLANCE)
            for cell, (process, began) in [*running.items()]:
                if process.poll() is None:
                    continue
                del running[cell]
                process.end()
                result = results[cell] = ended(cell, asked, process.returncode)
                report(result, time.monotonic() - began)
    return [results[cell] for cell in cells]


@contextmanager
def _running() -> Iterator[dict[Cell, tuple[WatchedProcess, float]]]:
    """The gates that run; whatever happens, none is left behind."""
    running: dict[Cell, tuple[WatchedProcess, float]] = {}
    try:
        yield running
    finally:
        for process, _ in running.values():
            process.send_signal(signal.SIGTERM)
        for process, _ in running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.end()
