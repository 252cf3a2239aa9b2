"""Print the figures as tables, and write them to the file that --json names."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from schedproof.gate.console import output

from .figure import Figure
from .machine import Machine

FORMAT = "schedproof/bench@1"


def reported(machine: Machine) -> list[str]:
    """Describe the machine in two lines."""
    memory = "" if machine.memory_mb is None else f", {machine.memory_mb / 1024:,.0f} GB"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return [
        f"machine: {machine.cpu}, {machine.cores} of {machine.cores_there} cores{memory}, "
        f"{machine.system}, load {machine.load:.1f} before",
        f"versions: {versions}",
    ]


def table(figure: Figure, details: bool) -> Table:
    """Return a figure's table. With `details`, include rows that otherwise appear only in the
    file."""
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column(figure.name, overflow="fold")
    drawn.add_column("", justify="right", no_wrap=True)
    drawn.add_column("unit", no_wrap=True)
    drawn.add_column("ratio", justify="right", no_wrap=True)
    drawn.add_column("", overflow="fold")
    for row in figure.rows:
        if details or not row.is_detail:
            drawn.add_row(
                escape(row.what),
                number(row.value, row.at_least),
                row.unit,
                number(row.ratio, row.ratio_at_least),
                escape(row.note),
            )
    return drawn


def ratio_line(figure: Figure) -> str:
    """Return a line that says which row the ratios refer to."""
    others = {row.to for row in figure.rows if row.ratio is not None}
    return f"ratios to {others.pop()}" if len(others) == 1 else "ratios to the nearest 1.00 above"


def number(value: float | None, at_least: bool = False) -> str:
    """Format a number to about three significant digits, with `>` before a lower bound."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{'> ' * at_least}{value:,.{digits}f}"


def as_json(machine: Machine, quick: bool, figures: Sequence[Figure]) -> bytes:
    """Return the content of the file that --json names. Each value has a unit; `seconds` of a
    figure are wall-clock time."""
    return output.as_json(
        {"format": FORMAT, "quick": quick, "machine": machine, "figures": list(figures)}
    )
