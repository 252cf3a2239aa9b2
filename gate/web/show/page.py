"""A run as one page: no network, no server, opens from a folder."""

from importlib.util import find_spec

from markupsafe import Markup

from ....model.errors import InputError
from ...console import output
from ..base.joined import filled, policy
from .payload import packed
from .recording import Run
from .static import static_values

INLINE = "inline"
BESIDE = "'self' file:"  # in the folder of the page, on a server or on a disk
SCRIPTS = [
    f"show_{part}" for part in ("data", "batch", "step", "story", "rules", "pictures", "moving")
]


def page(run: Run, plotly: str = INLINE) -> str:
    """The page of a run as HTML.

    `plotly`: "inline" writes plotly.js into the page (about 4.7 MB); anything else is a URL,
    relative to the page, of a plotly.min.js that several pages share.

    Raises:
        InputError: plotly.js is to be written into the page, and Plotly is not installed.
    """
    values = {
        **static_values(run),
        "title": output.one_line(run.name),
        "data": packed(run),
        "plotly": _plotly(plotly),
    }
    beside = "" if plotly == INLINE else BESIDE
    return filled("show", values, SCRIPTS, policy(script=beside))


def check_plotly() -> None:
    """Raise InputError unless plotly.js can be written into a page."""
    if find_spec("plotly") is None:
        raise InputError("-o", "Plotly is not installed; valid: pip install plotly")


def _plotly(plotly: str) -> Markup:
    if plotly != INLINE:
        return Markup('<script src="{}"></script>').format(plotly)
    check_plotly()
    from plotly.offline import get_plotlyjs

    return Markup(f"<script>{get_plotlyjs()}</script>")
