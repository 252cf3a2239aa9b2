"""The frontier as a picture, drawn by Plotly if it is installed."""

from pathlib import Path
from typing import Any

from .frontier_model import KNOBS, Load, Priced, StepCost
from .pictures import drawn_as

HEIGHT = 600
# Points of the two knobs may coincide: one is drawn around the other.
SYMBOLS = {"budget": "circle", "threshold": "diamond-open"}
SIZES = {"budget": 8, "threshold": 15}
LABELS = {"budget": "top right", "threshold": "bottom left"}
TICKS = {"type": "log", "dtick": "D2", "tickformat": ","}


def picture(path: Path, load: Load, cost: StepCost, points: list[Priced]) -> bytes:
    """Return the file: an .html page that needs no network, or an .svg.

    Raises:
        InputError: Kaleido cannot draw without a browser.
    """
    return drawn_as(path, figure(load, cost, points), "frontier", HEIGHT)


def figure(load: Load, cost: StepCost, points: list[Priced]) -> Any:
    """Draw TTFT against the longest gap of a decode, both logarithmic, with the setting of each
    point."""
    import plotly.graph_objects as plotly

    kept = [point for point in points if not point.dominated]
    drawn = plotly.Figure()
    drawn.add_scatter(
        x=[point.itl for point in kept],
        y=[point.ttft for point in kept],
        mode="lines",
        name="frontier",
        line={"color": "#bbbbbb"},
        hoverinfo="skip",
    )
    for knob in KNOBS:
        own = [point for point in points if point.point.knob == knob]
        drawn.add_scatter(
            x=[point.itl for point in own],
            y=[point.ttft for point in own],
            mode="markers+text",
            name=knob,
            text=[f"{point.point.setting:,}" for point in own],
            textposition=LABELS[knob],
            textfont={"size": 11},
            marker={
                "size": SIZES[knob],
                "line": {"width": 2},
                "symbol": ["x-thin-open" if point.dominated else SYMBOLS[knob] for point in own],
            },
            hovertext=[_hover_text(point) for point in own],
            hoverinfo="text",
        )
    unit = f"a step costs {cost.fixed:g} + {cost.per_token:g} x tokens; illustrative"
    drawn.update_layout(
        template="plotly_white",
        title={
            "text": f"A prompt of {load.prompt:,} tokens beside {load.decoding} decodes",
            "subtitle": {"text": f"{unit}; crosses: dominated"},
        },
        legend={"x": 0.98, "y": 0.98, "xanchor": "right"},
        height=HEIGHT,
    )
    drawn.update_xaxes(title_text="ITL: the longest gap between two tokens of a decode", **TICKS)
    drawn.update_yaxes(title_text="TTFT of the long prompt", **TICKS)
    return drawn


def _hover_text(priced: Priced) -> str:
    point = priced.point
    return (
        f"{point.knob} {point.setting:,}: chunk {point.chunk:,}, {point.steps:,} steps<br>"
        f"longest step {point.longest:,} tokens, mean {point.tokens / point.steps:,.0f}<br>"
        f"TTFT {priced.ttft:,.0f}, ITL {priced.itl:,.0f}{', dominated' * priced.dominated}"
    )
