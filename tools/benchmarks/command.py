"""The command line of the benchmarks: which figures to measure, and where to write them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from schedproof.gate.console import BROKEN, CONFORMS, INCONCLUSIVE, output
from schedproof.gate.console.option_checks import check_file
from schedproof.gate.files.disk import write
from schedproof.gate.judging.profiles import set_hypothesis_home
from schedproof.model.errors import InputError

from .figure import Figure, FigurePlan, Row


def command(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="use small budgets, and exit with code 1 if a figure is missing"
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="measure only this figure; repeat the option or write A,B to add more"
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the figures to this file")
    ] = None,
) -> None:
    """Measure how fast schedproof is. Each figure compares things that run side by side."""
    from . import figures  # importing Z3 takes a while

    plans = figures.chosen([part for word in only or [] for part in _parts(word)])
    if json_file is not None:
        check_file("--json", json_file)
    set_hypothesis_home()
    raise typer.Exit(run(output.make_console(), plans, quick, bool(only), json_file))


def _parts(word: str) -> list[str]:
    parts = [part.strip() for part in word.split(",") if part.strip()]
    if not parts:
        raise InputError("--only", f"{word!r} names no figure")
    return parts


def run(
    console: Console,
    plans: Sequence[FigurePlan],
    quick: bool,
    details: bool,
    json_file: Path | None,
) -> int:
    """Measure and print the figures, and return the exit code. Ctrl-C ends the measurement;
    figures that are complete are kept."""
    from .figures import measure
    from .machine import this_machine
    from .table import as_json, ratio_line, reported, table

    machine = this_machine()
    for line in reported(machine):
        output.say(console, line)
    found: list[Figure] = []
    interrupted = False
    try:
        for plan in plans:
            with console.status(plan.name) as status:

                def tell(row: Row, status: Status = status, name: str = plan.name) -> None:
                    status.update(escape(f"{name}: {row.what}"))

                figure = measure(plan, quick, tell)
            found.append(figure)
            output.say(console, "")
            output.say(console, f"{figure.title}: {figure.about} ({figure.seconds:.0f} s)")
            if figure.rows:
                console.print(table(figure, details))
                output.say(console, ratio_line(figure))
            if figure.missing is not None:
                output.say(console, f"not measured: {figure.missing}")
    except KeyboardInterrupt:
        interrupted = True
    if json_file is not None:
        write(json_file, as_json(machine, quick, found))
    if interrupted:
        output.fail("interrupted: these are the figures so far")
        return INCONCLUSIVE
    return _conclude(found)


def _conclude(found: Sequence[Figure]) -> int:
    """Return the exit code. It is 1 if a figure is missing without an excuse."""
    missing = [figure for figure in found if figure.missing is not None and not figure.excused]
    for figure in missing:
        output.fail(f"figure {figure.name} is missing: {figure.missing}")
    return BROKEN if missing else CONFORMS
