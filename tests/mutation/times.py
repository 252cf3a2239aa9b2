"""Times to find, as a table."""

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple


class Took(NamedTuple):
    """How long one engine was at one change, and whether it found it."""

    found: bool
    seconds: float
    steps: int


def rows(system: str, trials: Sequence[dict[str, Took]]) -> Iterator[str]:
    """A row an engine: how many changes it found, the median and the 95th percentile. What was not
    found is later than whatever was."""
    for engine in trials[0] if trials else ():
        ones = sorted((one[engine] for one in trials), key=lambda one: (not one.found, one.seconds))
        found = sum(one.found for one in ones)
        middle, late = ones[(len(ones) - 1) // 2], ones[math.ceil(0.95 * len(ones)) - 1]
        steps = median(one.steps if one.found else math.inf for one in ones)
        cells = (
            *(system, engine, len(ones), f"{found} ({found / len(ones):.1%})"),
            *(_seconds(middle), _seconds(late)),
            "not found" if steps == math.inf else f"{steps:,.0f}",
        )
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def findings(system: str, how: str, trials: Sequence[dict[str, Took]]) -> str:
    """The row of one kind of campaign, whose steps are items: what it found, and an hour of CPU."""
    ones = [one[how] for one in trials]
    found, hours = sum(one.found for one in ones), sum(one.seconds for one in ones) / 3600
    items = sum(one.steps for one in ones)
    cells = system, how, len(ones), found, f"{items:,}", f"{hours:.2f}", f"{found / hours:.0f}"
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _seconds(one: Took) -> str:
    return f"{'' if one.found else '> '}{one.seconds:.3f} s"
