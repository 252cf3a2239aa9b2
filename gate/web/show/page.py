"""A run as one page: no network, no server, opens from a folder."""

from ...console import output
from ..base.joined import filled, policy
from .payload import packed
from .recording import Run
from .static import static_values

SCRIPTS = [
    f"show_{part}"
    for part in ("data", "batch", "step", "story", "rules", "chart", "pictures", "moving")
]


def page(run: Run) -> str:
    """The page of a run as HTML."""
    values = {**static_values(run), "title": output.one_line(run.name), "data": packed(run)}
    return filled("show", values, SCRIPTS, policy())
