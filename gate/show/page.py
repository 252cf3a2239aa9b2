"""A run as one page: no network, no server, opens from a folder."""

from html import escape
from importlib.resources import files
from importlib.util import find_spec

from ...model.errors import InputError
from .. import report
from .packed import packed
from .recording import Run
from .static import failure, heading, side_by_side

INLINE = "inline"


def page(run: Run, plotly: str = INLINE) -> str:
    """The page of a run as HTML.

    `plotly`: "inline" writes plotly.js into the page (about 4.7 MB); anything else is a URL,
    relative to the page, of a plotly.min.js that several pages share.

    Raises:
        InputError: plotly.js is to be written into the page, and Plotly is not installed.
    """
    own = files(__package__)
    style = own.joinpath("page.css").read_text(encoding="utf-8")
    script = own.joinpath("page.js").read_text(encoding="utf-8")
    skeleton = own.joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(report.one_line(run.name)),
        "style": style,
        "heading": heading(run),
        "failure": failure(run),
        "side_by_side": side_by_side(run),
        "data": packed(run),
        "plotly": _plotly(plotly),
        "script": script,
    }
    for name, text in parts.items():
        skeleton = skeleton.replace(f"<!--{name}-->", text, 1)
    return skeleton


def check_plotly() -> None:
    """Raise InputError unless plotly.js can be written into a page."""
    if find_spec("plotly") is None:
        raise InputError("-o", "Plotly is not installed; valid: pip install 'schedproof[plot]'")


def _plotly(plotly: str) -> str:
    if plotly != INLINE:
        return f'<script src="{escape(plotly)}"></script>'
    check_plotly()
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>"
