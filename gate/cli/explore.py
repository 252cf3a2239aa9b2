"""`schedproof explore`: explore every behaviour of small scopes, or as many as the time allows."""

from pathlib import Path
from typing import Annotated

import typer

from ...model.errors import InputError
from ...model.systems import check_system
from ...solver.exploration.exploration import ExploreOptions
from ...solver.exploration.search import ORDERS
from ...solver.systems import explored_systems, space_of
from ...spec.catalogue import load
from ...spec.systems import first_system
from ..console import output
from ..console.option_checks import at_least, check_places, option, resolved_revision
from ..explore.explorer import (
    MEMORY_MB,
    Budget,
    change_scope,
    check_has_scopes,
    chosen_rules,
    chosen_scopes,
)
from ..explore.report import run_exploration
from ..files.project_file import FILE, TABLE
from ..web.states import check_drawing, draw
from .options import from_project, is_for_another_system, model_note

LIMIT_KEYS = dict.fromkeys(space_of(system).limit_key for system in explored_systems())


def command(
    context: typer.Context,
    system: Annotated[str, typer.Option(help="system to explore")] = first_system(),
    revision: Annotated[
        str | None,
        typer.Option(help="published behaviour to explore  [default: the system's first]"),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="scope of the system ("
            + "; ".join(
                f"{name}: {', '.join(scope.name for scope in space_of(name).scopes)}"
                for name in explored_systems()
            )
            + ")  [default: all]",
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="check only this rule; repeat the option to add more"),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="requests in a run, 1 to 6  [default: the scope's]")
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(
            help=f"{' or '.join(LIMIT_KEYS)}, such as 6-40 or 12,20,40  [default: the scope's]"
        ),
    ] = None,
    aborts: Annotated[
        str | None,
        typer.Option(
            help="aborts to explore: none, any, or alone (at most one per step, and none in a step "
            "in which a request ends early)  [default: the scope's]"
        ),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            help="order of the search: breadth (shortest runs first), depth, deepening or random"
        ),
    ] = "breadth",
    deepest: Annotated[
        int | None, typer.Option(help="end a path after this many moves, at least 1")
    ] = None,
    walks: Annotated[int, typer.Option(help="number of random walks, with --order random")] = 1000,
    seed: Annotated[int, typer.Option(help="seed of the random walks, 0 or more")] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="turn off the reductions, and visit every decode step")
    ] = False,
    jobs: Annotated[int, typer.Option(help="number of processes, at least 1")] = 2,
    time_limit: Annotated[
        float, typer.Option(help="seconds for the whole command, at least 1")
    ] = 3600.0,
    memory_limit: Annotated[
        int, typer.Option(help="memory limit per process in MB, at least 64")
    ] = MEMORY_MB,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="folder in which unfinished work is saved; a later command resumes it"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the coverage as JSON to this file")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="write a page with the states of one scope at one limit, up to 2,000 states",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="print a line for every rule, including those that hold"),
    ] = False,
) -> None:
    """Explore every behaviour of small scopes. Requests may arrive, end early or be aborted in any
    step."""
    for name, value, least in (
        ("--jobs", jobs, 1),
        ("--time-limit", time_limit, 1),
        ("--memory-limit", memory_limit, 64),
        ("--walks", walks, 1),
        ("--seed", seed, 0),
        ("--deepest", 1 if deepest is None else deepest, 1),
    ):
        at_least(name, value, least)
    check_places(json_file, out)
    if checkpoint is not None and checkpoint.exists() and not checkpoint.is_dir():
        raise InputError("--checkpoint", f"{checkpoint} is not a folder")
    with option("--system"):
        check_system(system)
    if is_for_another_system(context, "revision", system):
        revision = None
    in_project = f"{FILE}: {TABLE}.system" if from_project(context, "system") else None
    with option(in_project or "--system"):
        check_has_scopes(system, "; --system names another" if in_project else "; valid")
    resolved = resolved_revision(system, revision)
    if order not in ORDERS:
        raise InputError("--order", f"{order!r}; valid: {', '.join(ORDERS)}")
    catalogue = load(system, resolved)
    questions = [
        ExploreOptions(
            resolved,
            change_scope(chosen, requests, limits, aborts),
            order,
            reduced=not full,
            deepest=deepest,
            walks=walks if order == "random" else 0,
        )
        for chosen in chosen_scopes(scope, system, resolved)
    ]
    budget = Budget(time_limit, memory_limit, checkpoint, seed)
    rules = chosen_rules(catalogue, rule, resolved)
    if html is not None:
        check_drawing(html, questions, checkpoint)
    console = output.make_console()
    if note := model_note("explores", system):
        output.notice(console)(note)
    if html is not None:
        raise typer.Exit(draw(console, questions[0], rules, bool(rule), out, json_file, html))
    raise typer.Exit(
        run_exploration(
            console, questions, rules, bool(rule), jobs, budget, out, json_file, verbose=verbose
        )
    )
