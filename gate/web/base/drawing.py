"""Lay out the picture of a cause in percent, so that it fits any width and needs no script."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....properties.explanations.cause import Bar, Cause, Curve

PARTS = {
    "computed": "computed",
    "cached": "found in the cache",
    "never": "never computed",
    "missed": "computed before, and not found",
    "now": "computed in this step",
    "rest": "still to compute",
}
STATES = {
    "held": "held",
    "shared": "shared",
    "free": "free",
    "lost": "LOST",
    "twice": "FREE AND HELD",
    "unwritten": "NEVER WRITTEN",
    "foreign": "OTHER TOKENS",
    "named": "held",
}
STEP = re.compile(r"step (\d+): (.*)", re.DOTALL)
ROOM = 8.0  # percent above and below a curve
WIDE = 4.5  # percent of a bar in which its number fits


class Piece(NamedTuple):
    """A part of a bar: from `x` on, `width` wide, in percent."""

    kind: str
    tokens: int
    x: float
    width: float


class Spot(NamedTuple):
    """A point of a curve, in percent from the left and from the top."""

    x: float
    y: float


class Chart(NamedTuple):
    """A curve: points in percent, the limit's height, and where it is crossed."""

    curve: Curve
    spots: Sequence[Spot]
    projected: Sequence[tuple[Spot, Spot, str]]
    limit: float
    over: Spot
    value: int
    first: int
    last: int


class Picture(NamedTuple):
    """The values of the template `cause.html`.

    `why` are pairs of a step, which may be empty, and a sentence.
    """

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
    legend = [(p.kind, PARTS[p.kind], p.tokens) for bar in cause.bars[:1] for p in bar.parts]
    return Picture(
        cause,
        [_split(line) for line in cause.why],
        [(bar, _pieces(bar, longest)) for bar in cause.bars],
        legend if cause.bars and cause.bars[0].request else (),
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
    values: list[Any] = [*curve.points]
    last = max([step for step, _ in values] + [end - 1 for _, end, *_ in curve.projected] + [1])
    if curve.coming is not None:
        last += max(last // 8, 1)
        values.append((last, curve.coming))
    first = min((step for step, _ in values), default=0)
    heights = [value for _, value in values] + [value for _, _, value, _ in curve.projected]
    low, high = min([*heights, curve.limit]), max([*heights, curve.limit])
    over = max(value for value in heights)
    low = max(low, curve.limit - 20 * max(over - curve.limit, 1)) if len(values) > 20 else 0
    span = max(high - low, 1)

    def spot(step: int, value: int) -> Spot:
        height = (min(max(value, low), high) - low) / span
        across = (step - first) / max(last - first, 1)
        return Spot(2 + 96 * across, ROOM + (100 - 2 * ROOM) * (1 - height))

    spots = [spot(*point) for point in values]
    drawn = [
        (spot(start, value), spot(end - 1, value), name)
        for start, end, value, name in curve.projected
    ]
    end = spots[-1] if spots else spot(last, over)
    value = values[-1][1] if values else over
    limit = spot(first, curve.limit).y
    return Chart(curve, spots, drawn, limit, end, value, first, last)
