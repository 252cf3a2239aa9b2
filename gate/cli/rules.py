"""`schedproof rules`: the rules of a system, from its catalogue."""

from typing import Annotated

import typer

from ...model.systems import check_system
from ...spec.catalogue import load, select
from ...spec.shared import topics
from ...spec.systems import SYSTEMS, first_system
from ..console import output
from ..console.option_checks import option
from ..reports import catalogue as report
from .project import from_project


def command(
    context: typer.Context,
    system: Annotated[
        str | None, typer.Option(help="the system whose rules to list  [default: spyre]")
    ] = None,
    rule: Annotated[str | None, typer.Argument(help="show this rule in full")] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="what systems have in common, and where they differ")
    ] = False,
) -> None:
    """List the rules: text, source, and what checks them."""
    if rule is not None and from_project(context, "system"):
        system = None  # an id says which system it is of
    system = system or (_system_of(rule) if rule else first_system())
    with option("--system"):
        check_system(system)
    catalogue = load(system)
    console = output.make_console()
    if shared:
        report.show_shared(console, topics())
    elif rule is not None:
        report.show_rule(console, select(catalogue, [rule])[0])
    else:
        report.show_list(console, catalogue)


def _system_of(rule: str) -> str:
    """The first system that has a rule of this id; the first system if none has."""
    having = (system for system in SYSTEMS if rule in {known.id for known in load(system)})
    return next(having, first_system())
