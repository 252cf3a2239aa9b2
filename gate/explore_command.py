"""`schedproof explore`: every behaviour of small scopes, or as much of it as there is time for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from ..model.errors import InputError
from ..model.systems import check_system, resolve_revision
from ..properties.rules import LOCKSTEP, applies
from ..solver.explore import ORDERS
from ..solver.explored import Asked
from ..solver.scheduling import Aborts
from ..solver.scope import LIMIT_KEY, Scope
from ..solver.systems import SCOPES
from ..spec.catalogue import Rule, load
from . import report
from .explore_report import Reporter
from .exploring import MEMORY_MB, Budget, explore, parts_of
from .graph.drawing import check_drawing, draw
from .options import at_least, check_applies, check_places, option, picked

ABORTS: tuple[Aborts, ...] = get_args(Aborts)


def command(
    system: Annotated[str, typer.Option(help="the system to explore")] = "spyre",
    revision: Annotated[
        str | None, typer.Option(help="the published behaviour  [default: the system's first]")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="one of the system's ("
            + "; ".join(
                f"{name}: {', '.join(one.name for one in scopes)}"
                for name, scopes in SCOPES.items()
            )
            + ")  [default: all]",
        ),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="check only this rule; may be repeated")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="requests in a run, 1 to 6  [default: the scope's]")
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(
            help=f"{' or '.join(dict.fromkeys(LIMIT_KEY.values()))}, as 6-40 or 12,20,40  "
            "[default: the scope's]"
        ),
    ] = None,
    aborts: Annotated[
        str | None,
        typer.Option(
            help="none; alone: a client a step gives up, in a step in which nobody ends early; "
            "any: whoever ends  [default: the scope's]"
        ),
    ] = None,
    order: Annotated[
        str, typer.Option(help="breadth (shortest first), depth, deepening or random")
    ] = "breadth",
    deepest: Annotated[
        int | None, typer.Option(help="cut a path after so many moves, at least 1")
    ] = None,
    walks: Annotated[int, typer.Option(help="random walks, with --order random")] = 1000,
    seed: Annotated[int, typer.Option(help="of the random walks, from 0 upwards")] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="no reduction: every decode step is looked at")
    ] = False,
    jobs: Annotated[int, typer.Option(help="processes, at least 1")] = 2,
    time_limit: Annotated[float, typer.Option(help="seconds for everything, at least 1")] = 3600.0,
    memory_limit: Annotated[int, typer.Option(help="MB for each process, at least 64")] = MEMORY_MB,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="folder to put unfinished work by in, and to go on from"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write what was covered to this file")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="draw the states of one scope at one limit, 2,000 of them at most, as a page",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for counterexamples")] = Path("schedproof-out"),
) -> None:
    """Explore every behaviour of small scopes: arrivals, early ends, clients that give up."""
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
    with option("--revision"):
        resolved = resolve_revision(system, revision)
    if order not in ORDERS:
        raise InputError("--order", f"{order!r}; valid: {', '.join(ORDERS)}")
    catalogue = load(system)
    asked = [
        Asked(
            resolved,
            changed(one, requests, limits, aborts),
            order,
            reduced=not full,
            deepest=deepest,
            walks=walks if order == "random" else 0,
        )
        for one in chosen_scopes(scope, system, resolved)
    ]
    budget = Budget(time_limit, memory_limit, checkpoint, seed)
    rules = chosen_rules(catalogue, rule, resolved)
    if html is not None:
        check_drawing(html, asked, checkpoint)
        console = report.make_console()
        raise typer.Exit(draw(console, asked[0], rules, bool(rule), out, json_file, html))
    raise typer.Exit(
        run(report.make_console(), asked, rules, bool(rule), jobs, budget, out, json_file)
    )


def run(
    console: Console,
    asked: Sequence[Asked],
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


def chosen_scopes(names: Sequence[str] | None, system: str, revision: str) -> list[Scope]:
    """The scopes of these names, or all that the revision has.

    Raises:
        InputError: an unknown name, or a scope that the revision does not have.
    """
    valid = [one for one in SCOPES[system] if one.belongs_to(revision)]
    by_name = {one.name: one for one in valid}
    for name in names or ():
        if name not in by_name:
            words = ", ".join(by_name)
            raise InputError(
                "--scope", f"{name!r} is no scope of revision {revision}; valid: {words}"
            )
    return [by_name[name] for name in names or by_name]


def changed(scope: Scope, requests: int | None, limits: str | None, aborts: str | None) -> Scope:
    """The scope with what the options say.

    Raises:
        InputError: a value that means nothing.
    """
    if requests is not None:
        if not 1 <= requests <= 6:
            raise InputError("--requests", f"{requests}; valid: 1 to 6")
        scope = replace(scope, requests=requests)
    if aborts is not None:
        if aborts not in ABORTS:
            raise InputError("--aborts", f"{aborts!r}; valid: {', '.join(ABORTS)}")
        scope = replace(scope, aborts=aborts)
    return scope if limits is None else replace(scope, limits=read_limits(limits))


def read_limits(words: str) -> tuple[int, ...]:
    """Limits in tokens, ascending: "6-40", or "12,20,40".

    Raises:
        InputError: no numbers, or none at all.
    """
    found: set[int] = set()
    for part in words.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isascii() and end.isdigit() and len(end) < 7 for end in ends):
            raise InputError("--limits", f"{words!r}; valid: tokens, as 6-40 or 12,20,40")
        found |= set(range(int(ends[0]), int(ends[1]) + 1))
    if not found or min(found) < 1 or len(found) > 1000:
        raise InputError("--limits", f"{words!r}; valid: 1 to 1000 limits from 1 upwards")
    return tuple(sorted(found))


def chosen_rules(
    catalogue: Sequence[Rule], words: Sequence[str] | None, revision: str
) -> Sequence[Rule]:
    """The rules of these ids (`A,B` means A and B), or all that the revision has.

    Raises:
        InputError, CatalogueError: one that cannot be checked here.
    """
    rules = picked(catalogue, words) if words else catalogue
    for one in rules if words else ():
        if not one.checked:
            raise InputError("--rule", f"{one.id} has no predicate: {one.unchecked or one.planned}")
        if one.id == LOCKSTEP:
            raise InputError(
                "--rule", f"{one.id} compares a target with the model; valid: any other rule"
            )
        check_applies(one, revision)
    return [one for one in rules if one.checked and applies(one, revision) and one.id != LOCKSTEP]
