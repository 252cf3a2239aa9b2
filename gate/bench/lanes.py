"""Lanes beside the reference model: steps of all lanes a second, of the same loads."""

from collections.abc import Iterator
from importlib.util import find_spec

from .figure import NotMeasured, Plan, Row

EXTRA = "fast"


def rows(quick: bool) -> Iterator[Row]:
    """None yet.

    Raises:
        NotMeasured: NumPy is not installed, or there are no lanes.
    """
    if find_spec("numpy") is None:
        raise NotMeasured(f"needs schedproof[{EXTRA}]", excused=True)
    raise NotMeasured("this version has no lanes", excused=True)


PLAN = Plan(
    "lanes",
    "Lanes beside the reference model",
    "the same loads on both; lane-steps per second of CPU",
    rows,
)
