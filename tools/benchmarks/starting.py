"""Measure how long commands take to start: the CPU time of the process until it has printed its
help."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage

from .figure import FigurePlan, Row, in_turns

PYTHON = "Python alone"
SCHEDPROOF = ("-m", "schedproof")
BEGIN: dict[str, Sequence[str]] = {
    PYTHON: ("-c", "pass"),
    "--version": (*SCHEDPROOF, "--version"),
    **{name: (*SCHEDPROOF, name, "--help") for name in ("rules", "replay", "show", "gate")},
}


def rows(quick: bool) -> Iterator[Row]:
    """Yield a row for each command. The commands take turns."""
    works = [partial(begin, words) for words in BEGIN.values()]
    rates = in_turns(works, 1 if quick else 15, cpu_of_children)
    for what, rate in zip(BEGIN, rates, strict=True):
        yield Row(what=what, value=1000 / rate, unit="ms", ratio=rates[0] / rate, to=PYTHON)


def begin(words: Sequence[str]) -> float:
    """Run Python with these arguments until it ends."""
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return 1.0


def cpu_of_children() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PLAN = FigurePlan(
    "starting",
    "Until a command begins",
    "the version and the help of commands, each in a separate process; CPU of that process",
    rows,
)
