"""What `schedproof rules` prints: the list, and one rule in full."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ...spec.catalogue import Divergence, Rule
from ...spec.shared import Topic
from ...spec.systems import SYSTEMS


def show_list(console: Console, rules: Sequence[Rule]) -> None:
    """One line a rule."""
    for rule in rules:
        console.print(f"{rule.id:<8} {_state(rule):<9} {rule.title}", markup=False)
    checked = sum(rule.checked for rule in rules)
    planned = sum(bool(rule.planned) for rule in rules)
    console.print(
        f"{checked} rules are checked, {len(rules) - checked - planned} have no predicate of their "
        f"own, {planned} are planned; `schedproof rules RULE` shows one in full"
    )


def show_rule(console: Console, rule: Rule) -> None:
    """Everything that the catalogue has about one rule."""
    lines = [f"{rule.id} ({rule.kind}): {rule.title}", f"  says:      {rule.says}"]
    lines.append(f"  source:    {rule.source}")
    lines.append(f"  revisions: {', '.join(rule.revisions)}")
    if rule.planned:
        lines.append(f"  planned:   {rule.planned}")
    elif rule.unchecked:
        lines.append(f"  unchecked: {rule.because.capitalize()}. {rule.unchecked}")
        lines.append(f"  stands in: {', '.join(rule.stands_in) or 'nothing'}")
    else:
        lines.append(f"  needs:     {', '.join(rule.needs) or 'nothing beyond kind, scheduled'}")
        lines.append(f"  witness:   {rule.witness}")
        lines.append(f"  engines:   {', '.join(rule.engines)}")
    for change in rule.changes:
        lines.append(f"  {f'{change.since}:':<10} {change.says}")
        lines.append(f"             {change.source}; {change.change}")
    lines += [f"  differs:   {one.releases}: {_with_change(one)}" for one in rule.divergences]
    for line in lines:
        console.print(line, markup=False)


def _with_change(divergence: Divergence) -> str:
    return divergence.says + f" ({divergence.change})" * bool(divergence.change)


def show_shared(console: Console, topics: Sequence[Topic]) -> None:
    """Topics that systems share: the rules side by side, and where they differ."""
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
