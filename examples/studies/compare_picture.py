"""The comparison as a picture: the tokens of every step, with a row for each model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .compared import Measured
from .pictures import drawn_as

ROW, FRAME = 170, 130  # pixels


def picture(path: Path, workload: str, measured: Sequence[Measured]) -> bytes:
    """Return the file: an .html page that needs no network, or an .svg.

    Raises:
        InputError: Kaleido cannot draw without a browser.
    """
    return drawn_as(path, figure(workload, measured), "compare", _height(measured))


def figure(workload: str, measured: Sequence[Measured]) -> Any:
    """Draw tokens over steps; all rows have the same axes."""
    from plotly.subplots import make_subplots

    drawn = make_subplots(
        rows=len(measured),
        shared_xaxes="all",
        shared_yaxes="all",
        vertical_spacing=0.06,
        subplot_titles=[_subtitle(result) for result in measured],
    )
    for row, result in enumerate(measured, 1):
        drawn.add_scatter(
            y=result.tokens,
            mode="lines",
            line={"width": 1, "shape": "hv"},
            fill="tozeroy",
            showlegend=False,
            hovertemplate="step %{x}: %{y} tokens<extra></extra>",
            row=row,
            col=1,
        )
    drawn.update_layout(
        template="plotly_white",
        title=f"{workload}: tokens computed in each step",
        height=_height(measured),
    )
    drawn.update_xaxes(title_text="step", row=len(measured), col=1)
    # A decode step has few tokens, a prefill thousands.
    drawn.update_yaxes(type="log", title_text="tokens")
    return drawn


def _subtitle(result: Measured) -> str:
    preempted = f", {result.preemptions} preemptions" if result.preemptions else ""
    return f"{result.server.name}: {len(result.tokens):,} steps{preempted}"


def _height(measured: Sequence[Measured]) -> int:
    return FRAME + ROW * len(measured)
