"""A figure: rows that are measured side by side, each compared with another row."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A number, and its ratio to another number from the same run.

    Attributes:
        what: what was measured; unique among the rows.
        value: the number, in `unit`; None if it was not measured, and `note` then says why.
        at_least: whether the true value is larger, because the measurement was stopped.
        ratio: `value` divided by the value of the row `to`, if there is one.
        ratio_at_least: whether the true ratio is larger.
        is_detail: whether the row is left out of the table of all figures.
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
    """A figure that was measured.

    Attributes:
        seconds: the wall-clock time that the whole figure took.
        missing: why the figure, or a part of it, is missing.
        excused: whether the figure is missing only because an optional dependency is not installed.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...] = ()
    seconds: float = 0.0
    missing: str | None = None
    excused: bool = False


class NotMeasured(Exception):  # noqa: N818 (an answer, not an error)
    """Raised if a figure cannot be measured here. The message says why in one line. `excused`
    means that the only reason is an optional dependency that is not installed."""

    def __init__(self, why: str, *, excused: bool = False) -> None:
        super().__init__(why)
        self.excused = excused


class FigurePlan(NamedTuple):
    """A figure that can be measured: `rows(quick)` yields its rows one by one."""

    name: str
    title: str
    about: str
    rows: Callable[[bool], Iterator[Row]]


def in_turns(
    works: Sequence[Callable[[], float]], rounds: int, clock: Callable[[], float] | None = None
) -> list[float]:
    """Run the functions `works` alternately, and return the median rate of each.

    Because they take turns, a slow phase of the machine affects all functions alike. A function
    returns how much work it did. Its rate is that amount per second of `clock` (default: CPU time
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
