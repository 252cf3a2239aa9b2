"""Print how long each engine took to find the changes, as a table."""

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple


class Took(NamedTuple):
    """The time that one engine spent on one change, and whether it found the change."""

    found: bool
    seconds: float
    steps: int


def rows(system: str, trials: Sequence[dict[str, Took]]) -> Iterator[str]:
    """Yield a row for each engine: how many changes it found, and the median and 95th percentile
    of its times. Changes that were not found rank after all others."""
    for engine in trials[0] if trials else ():
        ones = sorted(
            (trial[engine] for trial in trials), key=lambda took: (not took.found, took.seconds)
        )
        found = sum(took.found for took in ones)
        middle, late = ones[(len(ones) - 1) // 2], ones[math.ceil(0.95 * len(ones)) - 1]
        steps = median(took.steps if took.found else math.inf for took in ones)
        cells = (
            *(system, engine, len(ones), f"{found} ({found / len(ones):.1%})"),
            *(_seconds(middle), _seconds(late)),
            "not found" if steps == math.inf else f"{steps:,.0f}",
        )
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _seconds(took: Took) -> str:
    return f"{'' if took.found else '> '}{took.seconds:.3f} s"
