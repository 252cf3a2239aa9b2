"""`schedproof explore --html`: explore one small configuration, judge it, and draw its states."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ....model.errors import InputError
from ....solver.exploration.exploration import ExploreOptions
from ....solver.exploration.graph import drawn
from ....spec.catalogue import Rule
from ...console.option_checks import check_file
from ...explore.explorer import Ended, memory_mb
from ...explore.report import Reporter
from ...files.writing import write
from ..base.page import render_page
from .data import cut_line, page_data

MAX_STATES = 2_000


def check_drawing(html: Path, asked: Sequence[ExploreOptions], checkpoint: Path | None) -> None:
    """Notice before the work that this cannot be one picture.

    Raises:
        InputError: several configurations, another order, or no place for the file.
    """
    check_file("--html", html)
    if len(asked) > 1:
        raise InputError("--html", f"draws one scope, not {len(asked)}; valid: with one --scope")
    scope = asked[0].scope
    if len(scope.limits) > 1:
        raise InputError(
            "--html",
            f"draws one limit, and scope {scope.name} has {len(scope.limits)}; "
            f"valid: with one, as --limits {scope.limits[0]}",
        )
    if asked[0].order != "breadth":
        raise InputError("--html", f"with --order {asked[0].order}; valid: with --order breadth")
    if checkpoint is not None:
        raise InputError("--html", "with --checkpoint; valid: without, a drawing is short")


def draw(
    console: Console,
    asked: ExploreOptions,
    rules: Sequence[Rule],
    chosen: bool,
    out: Path,
    json_file: Path | None,
    html: Path,
) -> int:
    """Explore, report as ever, and write the page; the exit code."""
    began = time.time()
    reporter = Reporter(console, [asked], rules, out)
    graph = drawn(asked, rules, MAX_STATES)
    cut = cut_line(graph)
    why = "" if graph.result.complete else cut or "paths were cut"
    reporter(Ended(graph.result, why, time.time() - began, memory_mb()))
    page = render_page("graph", page_data(graph, list(rules)))
    write(html, page.encode())
    code = reporter.conclude(chosen, json_file)
    console.print(f"page: {html}", markup=False)
    return code
