"""Lay out the picture of a failure's cause. All sizes are percentages, so the picture fits any
width and needs no script."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from ....properties.explanations.cause import Bar, Cause, Curve

PARTS = {
    "computed": "computed",
    "cached": "found in the cache",
    "never": "never computed",
    "missed": "computed before, and not found",
    "same": "the same tokens, after others",
    "pad": "left padding",
    "empty": "empty, up to the end of the chunk",
    "limit": "limit",
    "tkv": "tkv as reported",
    "over": "over the limit",
    "now": "computed in this step",
    "rest": "still to compute",
}
STATES = {
    "held": "held",
    "shared": "shared",
    "free": "free",
    "lost": "LOST",
    "twice": "FREE AND HELD",
    "returned": "FREE TWICE",
    "unwritten": "NEVER WRITTEN",
    "foreign": "OTHER TOKENS",
    "named": "held",
}
STEP = re.compile(r"step (\d+): (.*)", re.DOTALL)
ROOM = 8.0  # percent of the height left free above and below a curve
WIDE = 4.5  # percent; narrower pieces of a bar get no number


class Piece(NamedTuple):
    """A part of a bar that begins at `x` and is `width` wide, in percent."""

    kind: str
    tokens: int
    x: float
    width: float


class Spot(NamedTuple):
    """A point of a curve, in percent from the left and the top."""

    x: float
    y: float


class Chart(NamedTuple):
    """A curve near its limit: its points, the height of the limit, the point where the curve
    crosses it, and the lowest value.

    Two more lines run from the step of admission to the last step: the values that admission
    projected, and the values that are still to come.
    """

    curve: Curve
    spots: Sequence[Spot]
    projected: Sequence[tuple[Spot, Spot, str]]
    coming: tuple[Spot, Spot] | None
    limit: float
    over: Spot
    value: int
    first: int
    last: int
    low: int


class Picture(NamedTuple):
    """The values for the template `cause.html`. `why` contains pairs: a step (or "") and a
    sentence."""

    cause: Cause
    why: Sequence[tuple[str, str]]
    bars: Sequence[tuple[Bar, Sequence[Piece]]]
    legend: Sequence[tuple[str, str, int]]
    chart: Chart | None
    steps: Sequence[int]
    words: dict[str, str] = STATES


def picture(cause: Cause | None) -> Picture | None:
    if cause is None:
        return None
    longest = max((_tokens(bar) for bar in cause.bars), default=1)
    turns = len(cause.rows[0].turns) if cause.rows else 0
    legend = {
        part.kind: (part.kind, PARTS[part.kind], part.tokens)
        for bar in reversed(cause.bars)
        for part in reversed(bar.parts)
        if part.kind in PARTS and bar.request
    }
    return Picture(
        cause,
        [_split(line) for line in cause.why],
        [(bar, _pieces(bar, longest)) for bar in cause.bars],
        [*legend.values()][::-1],
        None if cause.curve is None else _chart(cause.curve),
        range(cause.first, cause.first + turns),
    )


def _split(line: str) -> tuple[str, str]:
    found = STEP.fullmatch(line)
    return (found[1], found[2]) if found else ("", line)


def _tokens(bar: Bar) -> int:
    return sum(part.tokens for part in bar.parts)


def _pieces(bar: Bar, longest: int) -> list[Piece]:
    found, place = [], 0
    for part in bar.parts:
        found.append(
            Piece(part.kind, part.tokens, 100 * place / longest, 100 * part.tokens / longest)
        )
        place += part.tokens
    return found


def _chart(curve: Curve) -> Chart:
    """Draw the part of a curve that is near the limit, or from 0 if the values are small."""
    latest = curve.projected[-1:]
    begin = latest[0][0] if latest else max((step for step, _ in curve.points), default=0)
    last = max([step for step, _ in curve.points] + [begin + bool(latest)])
    value = curve.points[-1][1] if curve.coming is None else curve.coming
    top = max([value, curve.limit, *(most for _, _, most, _ in latest)])
    base = min([curve.limit, *(most for _, _, most, _ in latest)])
    beyond = max(value - base, 1)
    low = max(base - beyond * 2 // 5, 0) if base > 2 * beyond else 0
    near = [*takewhile(lambda point: point[1] >= low, reversed(curve.points))][::-1]
    # With one more point, because the curve may jump up from below the axis.
    near = [*curve.points[-len(near) - 1 :]]
    first = min([step for step, _ in near] + [begin])

    def spot(step: int, height_of: int) -> Spot:
        across = (step - first) / max(last - first, 1)
        height = (height_of - low) / max(top - low, 1)
        return Spot(2 + 96 * across, ROOM + (100 - 2 * ROOM) * (1 - height))

    drawn = [(spot(begin, most), spot(last, most), name) for begin, _, most, name in latest]
    coming = None if curve.coming is None else (spot(begin, value), spot(last, value))
    spots, limit = [spot(*point) for point in near], spot(first, curve.limit).y
    return Chart(curve, spots, drawn, coming, limit, spot(last, value), value, first, last, low)
