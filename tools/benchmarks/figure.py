"""What a figure is made of: rows that were measured side by side, each compared with another."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One number, and what it is beside another of the same run.

    Attributes:
        what: what was measured, one name a row.
        value: in `unit`, None where it was not measured; `note` then says why.
        at_least: the true value is larger: the measurement ended before.
        ratio: `value` divided by that of the row `to`, where there is one.
        ratio_at_least: the true ratio is larger.
        is_detail: left out of the table of all figures.
    """

    what: str
    value: float | None
    unit: str
    at_least: bool = False
    ratio: float | None = None
    ratio_at_least: bool = False
    to: str | None = None
    note: str = ""
    is_detail: bool = False


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as it was measured.

    Attributes:
        seconds: by the clock, that all of it took.
        missing: why there is no figure, or not all of it.
        excused: it is missing for want of something that is optional and not installed.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...] = ()
    seconds: float = 0.0
    missing: str | None = None
    excused: bool = False


class NotMeasured(Exception):  # noqa: N818 (an answer, not an error)
    """The figure cannot be measured here; `str()` says why in one line.

    `excused`: for want of something optional that is not installed.
    """

    def __init__(self, why: str, *, excused: bool = False) -> None:
        super().__init__(why)
        self.excused = excused


class FigurePlan(NamedTuple):
    """A figure that can be measured: `rows(quick)` yields them as they come."""

    name: str
    title: str
    about: str
    rows: Callable[[bool], Iterator[Row]]


def in_turns(
    works: Sequence[Callable[[], float]], rounds: int, clock: Callable[[], float] | None = None
) -> list[float]:
    """Median rates of works that take turns: what slows the machine down meets all of them.

    A work returns how much it did; its rate is that by the seconds of `clock` (default: CPU time
    of this process).
    """
    clock = clock or time.process_time
    rates: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for number, work in enumerate(works):
            began = clock()
            done = work()
            rates[number].append(done / max(clock() - began, 1e-9))
    return [median(rate) for rate in rates]
