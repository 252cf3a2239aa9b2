"""The figures drawn by Plotly: pages that need no network."""

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from ..gate.console.option_checks import check_file
from ..gate.files.scenario_file import FileError
from ..gate.files.writing import write
from ..model.errors import InputError
from .figure import Figure, Row
from .machine import Machine
from .table import number, reported

BAR, FRAME, HEIGHT = 26, 150, 460  # pixels
OPTION = "--plots"


def check_place(place: Path) -> None:
    """Notice before the work, not after it, that there will be no plots.

    Raises:
        InputError: no place for them, or nothing that draws them.
    """
    if place.suffix == ".html":
        check_file(OPTION, place)
    elif place.suffix:
        raise InputError(OPTION, f"{place}; valid: a file that ends in .html, or a folder")
    elif place.exists() and not place.is_dir():
        raise InputError(OPTION, f"{place} is no folder; valid: a folder, or an .html file")
    elif not place.parent.is_dir():
        raise InputError(OPTION, f"{place}: the folder {place.parent} does not exist")
    if find_spec("plotly") is None:
        raise InputError(OPTION, "Plotly is not installed; valid: pip install plotly")


def draw(place: Path, machine: Machine, figures: Sequence[Figure]) -> None:
    """One page of all figures, or a page each in a folder.

    Raises:
        FileError: it cannot be written to.
    """
    if place.suffix == ".html":
        write(place, page(machine, figures))
        return
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"{place}: cannot be made ({error.strerror})") from None
    for figure in figures:
        write(place / f"{figure.name}.html", page(machine, [figure]))


def page(machine: Machine, figures: Sequence[Figure]) -> bytes:
    """The charts one below the other, with what they were measured on."""
    from html import escape

    parts = []
    for figure in figures:
        parts.append(f"<h2>{escape(figure.title)}</h2>\n<p>{escape(figure.about)}</p>")
        if figure.missing is not None:
            parts.append(f"<p>not measured: {escape(figure.missing)}</p>")
        for place, chart in enumerate(charts(figure)):
            first = not any("plotly.js" in part for part in parts)
            name = f"{figure.name}-{place}"
            parts.append(chart.to_html(include_plotlyjs=first, full_html=False, div_id=name))
    lines = "<br>\n".join(escape(line) for line in reported(machine))
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        "<title>schedproof bench</title>"
        "<style>body { font-family: sans-serif; max-width: 70em; margin: 2em auto; "
        "padding: 0 1em }</style></head>\n"
        f"<body>\n<h1>schedproof bench</h1>\n<p>{lines}</p>\n{body}\n</body></html>\n"
    ).encode()


def charts(figure: Figure) -> list[Any]:
    """A chart for each unit: curves, times until something was found, or bars."""
    rows = [row for row in figure.rows if row.value is not None]
    drawn = []
    for unit, group in groupby(sorted(rows, key=lambda row: row.unit), key=lambda row: row.unit):
        own = list(group)
        if all(row.at is not None for row in own):
            drawn.append(curves(own, unit, figure.axis))
            continue
        found = [row for row in own if row.series is not None]
        if found:
            drawn.append(shares(found, unit))
        drawn.append(bars([row for row in own if row.series is None], unit))
    return drawn


def curves(rows: Sequence[Row], unit: str, axis: str) -> Any:
    """A line a series; open points are at least so much."""
    drawn = _chart(unit, HEIGHT)
    for name in dict.fromkeys(row.series for row in rows):
        own = [row for row in rows if row.series == name]
        drawn.add_scatter(
            x=[row.at for row in own],
            y=[row.value for row in own],
            name=name,
            mode="lines+markers",
            marker={"symbol": ["circle-open" if row.at_least else "circle" for row in own]},
            text=[_told(row) for row in own],
            hoverinfo="text",
        )
    drawn.update_xaxes(title_text=axis, type="log")
    drawn.update_yaxes(title_text=unit, type="log")
    return drawn


def shares(rows: Sequence[Row], unit: str) -> Any:
    """How many were found after so long."""
    drawn = _chart(unit, HEIGHT)
    for name in dict.fromkeys(row.series for row in rows):
        own = [row for row in rows if row.series == name]
        found = sorted((row for row in own if not row.at_least), key=lambda row: row.value or 0)
        drawn.add_scatter(
            x=[row.value for row in found],
            y=list(range(1, len(found) + 1)),
            name=f"{name} ({len(found)} of {len(own)})",
            mode="lines+markers",
            line={"shape": "hv"},
            text=[_told(row) for row in found],
            hoverinfo="text",
        )
    drawn.update_xaxes(title_text=unit, type="log")
    drawn.update_yaxes(title_text="found", rangemode="tozero")
    return drawn


def bars(rows: Sequence[Row], unit: str) -> Any:
    """A bar a row, the first on top."""
    drawn = _chart(unit, FRAME + BAR * len(rows))
    drawn.add_bar(
        x=[row.value for row in rows],
        y=[row.what for row in rows],
        orientation="h",
        text=[number(row.value, row.at_least) for row in rows],
        hovertext=[_told(row) for row in rows],
        hoverinfo="text",
    )
    drawn.update_xaxes(title_text=unit)
    drawn.update_yaxes(autorange="reversed", automargin=True)
    return drawn


def _chart(unit: str, height: int) -> Any:
    import plotly.graph_objects as plotly

    drawn = plotly.Figure()
    drawn.update_layout(template="plotly_white", height=height, margin={"t": 40}, title=unit)
    return drawn


def _told(row: Row) -> str:
    ratio = f"<br>{number(row.ratio, row.ratio_at_least)} x {row.to}" if row.ratio else ""
    note = f"<br>{row.note}" if row.note else ""
    return f"{row.what}: {number(row.value, row.at_least)} {row.unit}{ratio}{note}"
