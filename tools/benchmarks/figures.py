"""Measure each figure. If one fails, report it as missing and go on with the others."""

import time
from collections.abc import Callable

from schedproof.model.errors import InputError

from . import (
    explorers,
    finding,
    models,
    overhead,
    processes,
    starting,
    vectorized,
)
from .figure import Figure, FigurePlan, NotMeasured, Row

PLANS: tuple[FigurePlan, ...] = (
    models.PLAN,
    vectorized.PLAN,
    explorers.PLAN,
    finding.PLAN,
    overhead.PLAN,
    processes.PLAN,
    starting.PLAN,
)


def chosen(names: list[str]) -> list[FigurePlan]:
    """Return the figures that `--only` names, or all of them, in the order of the table.

    Raises:
        InputError: there is no such figure.
    """
    known = [plan.name for plan in PLANS]
    for name in names:
        if name not in known:
            raise InputError("--only", f"{name!r:.60}; valid: {', '.join(known)}")
    return [plan for plan in PLANS if not names or plan.name in names]


def measure(plan: FigurePlan, quick: bool, tell: Callable[[Row], None]) -> Figure:
    """Measure a figure, and pass each row to `tell` as soon as it is measured. If anything
    fails, `missing` of the figure says what."""
    rows: list[Row] = []
    missing, excused = None, False
    began = time.monotonic()
    try:
        for row in plan.rows(quick):
            rows.append(row)
            tell(row)
        if not any(row.value is not None for row in rows):
            missing = "; ".join(row.note for row in rows) or "nothing was measured"
    except NotMeasured as why:
        missing, excused = str(why), why.excused
    except Exception as error:  # one failure must not stop the other figures
        missing = f"{type(error).__name__}: {error}".splitlines()[0]
    return Figure(
        name=plan.name,
        title=plan.title,
        about=plan.about,
        rows=tuple(rows),
        seconds=time.monotonic() - began,
        missing=missing,
        excused=excused,
    )
