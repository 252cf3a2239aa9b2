"""The frontier as a picture, by Plotly where it is installed."""

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


def picture(path: Path, load: Load, cost: StepCost, found: list[Priced]) -> bytes:
    """The file: an .html page that needs no network, or an .svg.

    Raises:
        InputError: Kaleido cannot draw, for want of a browser.
    """
    return drawn_as(path, figure(load, cost, found), "frontier", HEIGHT)


def figure(load: Load, cost: StepCost, found: list[Priced]) -> Any:
    """TTFT against the longest gap of a decode, both logarithmic; each point has its setting."""
    import plotly.graph_objects as plotly

    kept = [one for one in found if not one.dominated]
    drawn = plotly.Figure()
    drawn.add_scatter(
        x=[one.itl for one in kept],
        y=[one.ttft for one in kept],
        mode="lines",
        name="frontier",
        line={"color": "#bbbbbb"},
        hoverinfo="skip",
    )
    for knob in KNOBS:
        own = [one for one in found if one.point.knob == knob]
        drawn.add_scatter(
            x=[one.itl for one in own],
            y=[one.ttft for one in own],
            mode="markers+text",
            name=knob,
            text=[f"{one.point.setting:,}" for one in own],
            textposition=LABELS[knob],
            textfont={"size": 11},
            marker={
                "size": SIZES[knob],
                "line": {"width": 2},
                "symbol": ["x-thin-open" if one.dominated else SYMBOLS[knob] for one in own],
            },
            hovertext=[_told(one) for one in own],
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


def _told(one: Priced) -> str:
    point = one.point
    return (
        f"{point.knob} {point.setting:,}: chunk {point.chunk:,}, {point.steps:,} steps<br>"
        f"longest step {point.longest:,} tokens, mean {point.tokens / point.steps:,.0f}<br>"
        f"TTFT {one.ttft:,.0f}, ITL {one.itl:,.0f}{', dominated' * one.dominated}"
    )
