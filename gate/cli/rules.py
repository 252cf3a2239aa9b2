"""`schedproof rules`: show the rules of a system."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ...model.systems import check_system
from ...spec.catalogue import Rule, Topic, load, select, topics
from ...spec.systems import SYSTEMS, first_system
from ..console import output
from ..console.option_checks import option
from .options import from_project


def show_list(console: Console, rules: Sequence[Rule]) -> None:
    for rule in rules:
        console.print(f"{rule.id:<8} {_state(rule):<9} {rule.title}", markup=False)
    checked = sum(rule.checked for rule in rules)
    planned = sum(bool(rule.planned) for rule in rules)
    console.print(
        f"{checked} rules are checked, {len(rules) - checked - planned} have no predicate of their "
        f"own, {planned} are planned; `schedproof rules RULE` shows a rule in full"
    )


def show_rule(console: Console, rule: Rule) -> None:
    lines = [f"{rule.id} ({rule.kind}): {rule.title}", f"  says:      {rule.statement}"]
    lines.append(f"  source:    {rule.source}")
    lines.append(f"  revisions: {', '.join(rule.revisions)}")
    if rule.planned:
        lines.append(f"  planned:   {rule.planned}")
    elif rule.unchecked:
        lines.append(f"  unchecked: {rule.reason.capitalize()}. {rule.unchecked}")
        lines.append(f"  covered:   by {', '.join(rule.stands_in) or 'no other rule'}")
    else:
        lines.append(f"  needs:     {', '.join(rule.needs) or 'nothing beyond kind, scheduled'}")
        lines.append(f"  witness:   {rule.witness}")
        lines.append(f"  engines:   {', '.join(rule.engines)}")
    for change in rule.changes:
        lines.append(f"  {f'{change.since}:':<10} {change.statement}")
        lines.append(f"             {change.source}; {change.change}")
    for divergence in rule.divergences:
        since = f" ({divergence.change})" * bool(divergence.change)
        lines.append(f"  differs:   {divergence.releases}: {divergence.statement}{since}")
    for line in lines:
        console.print(line, markup=False)


def show_shared(console: Console, topics: Sequence[Topic]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("topic", *SYSTEMS):
        table.add_column(head)
    for topic in topics:
        cells = ("\n".join(topic.rules.get(system, ("-",))) for system in SYSTEMS)
        table.add_row(topic.title, *cells)
    console.print(table)
    for topic in topics:
        console.print(f"{topic.title}: {topic.differs}", markup=False, soft_wrap=True)


def _state(rule: Rule) -> str:
    return rule.kind if rule.checked else "planned" if rule.planned else "unchecked"


def command(
    context: typer.Context,
    system: Annotated[
        str | None,
        typer.Option(
            help="list the rules of this system  [default: the project's system, or spyre]"
        ),
    ] = None,
    rule: Annotated[list[str] | None, typer.Argument(help="show these rules in full")] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="show which rules the systems share, and where they differ"),
    ] = False,
) -> None:
    """List the rules of a system, or show some of them in full: text, source, and what checks
    them."""
    if rule and from_project(context, "system"):
        system = None  # the system follows from the rule's id
    if system is not None:
        with option("--system"):
            check_system(system)
    console = output.make_console()
    if shared:
        show_shared(console, topics())
    elif rule:
        chosen = [select(load(system or _system_of(name)), [name])[0] for name in rule]
        for number, each in enumerate(chosen):
            if number:
                console.print()
            show_rule(console, each)
    else:
        show_list(console, load(system or first_system()))


def _system_of(rule: str) -> str:
    having = (system for system in SYSTEMS if rule in {known.id for known in load(system)})
    return next(having, first_system())
