"""`schedproof selfcheck`: does the suite find every planted fault, and do its engines agree?"""

from typing import Annotated

import typer

from ..console import output
from .options import TimeLimit


def command(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="witnesses, mutants or agreement; may be repeated"),
    ] = None,
    jobs: Annotated[int, typer.Option(help="processes, at least 1")] = 2,
    time_limit: TimeLimit = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="one engine that answers is enough; much faster")
    ] = False,
) -> None:
    """Check the suite itself: every witness occurs, every mutant is killed, the engines agree."""
    from ..selfcheck.run import check_parts, run  # Z3 takes a third of a second to import

    parts = check_parts(only or [], jobs)
    raise typer.Exit(run(output.make_console(), parts, jobs, quick))
