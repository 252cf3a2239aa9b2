"""Explore and report."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ...solver.exploration.exploration import ExploreOptions
from ...spec.catalogue import Rule
from .explorer import Budget, explore, parts_of
from .report import Reporter


def run(
    console: Console,
    asked: Sequence[ExploreOptions],
    rules: Sequence[Rule],
    chosen: bool,
    jobs: int,
    budget: Budget,
    out: Path,
    json_file: Path | None,
    until_broken: bool = False,
) -> int:
    """Explore and report; the exit code. `until_broken`: the first counterexample ends it."""
    parts = [part for one in asked for part in parts_of(one, jobs)]
    reporter = Reporter(console, parts, rules, out)
    try:
        for event in explore(parts, rules, jobs, budget):
            reporter(event)
            if until_broken and reporter.broken:
                break
    finally:
        reporter.close()
    return reporter.conclude(chosen, json_file, until_broken and reporter.broken)
