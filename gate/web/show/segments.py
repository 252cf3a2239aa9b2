"""Store a value for each step of a run compactly: numbers as linear segments, other values by their
changes.

In most steps a number stays the same or grows by one; where prefill and decode alternate, a pattern
repeats. So a few segments can represent thousands of steps. The page expands them again, and no
number is lost or rounded.
"""

from typing import Any, NamedTuple


class Segment(NamedTuple):
    """The values of `steps` steps from step `first` on: `value`, `value` + `slope`, `value` + 2
    `slope` …

    All of this is repeated `times` times, each time `stride` steps later and with values that are
    larger by `rise`.
    """

    first: int
    value: int
    slope: int
    steps: int
    stride: int = 0
    rise: int = 0
    times: int = 1

    def at(self, step: int) -> int | None:
        """Return the number in a step, or None. The step must not be before the first."""
        time = min((step - self.first) // self.stride, self.times - 1) if self.stride else 0
        later = step - self.first - time * self.stride
        if 0 <= later < self.steps:
            return self.value + time * self.rise + later * self.slope
        return None

    def then(self, other: "Segment") -> "Segment | None":
        """Return both segments as one if `other` repeats this one; otherwise None."""
        if (other.slope, other.steps) != (self.slope, self.steps):
            return None
        stride, rise = other.first - self.first, other.value - self.value
        if self.times == 1:
            return self._replace(stride=stride, rise=rise, times=2)
        if (stride, rise) == (self.stride * self.times, self.rise * self.times):
            return self._replace(times=self.times + 1)
        return None


class Line:
    """A number for each step; a step without a recorded number has none."""

    __slots__ = ("_closed", "_due", "_last", "_next")

    def __init__(self) -> None:
        self._closed: list[Segment] = []
        self._last: list[int] = []  # the last piece, which may grow: first, value, slope, steps
        self._next = -1  # the step after the last one
        self._due = 0  # the next value if the last piece continues

    @property
    def pieces(self) -> list[Segment]:
        return [*self._closed, Segment(*self._last)] if self._last else []

    def note(self, step: int, value: int | None) -> None:
        """Record the number in a step, which must be later than all recorded steps; None records
        nothing."""
        if value is None:
            return
        last = self._last
        if step != self._next:
            self._begin(step, value)
        elif last[3] == 1:
            last[2] = value - last[1]
            last[3] = 2
        elif value == self._due:
            last[3] += 1
        else:
            self._begin(step, value)
        self._next = step + 1
        self._due = value + self._last[2]

    def at(self, step: int) -> int | None:
        if self._last and self._last[0] <= step:
            return Segment(*self._last).at(step)
        return next(
            (segment.at(step) for segment in reversed(self._closed) if segment.first <= step), None
        )

    def flat(self) -> list[int]:
        """Return all segments in one list, seven numbers each."""
        return [number for piece in self.pieces for number in piece]

    def _begin(self, step: int, value: int) -> None:
        if self._last:
            piece = Segment(*self._last)
            again = self._closed[-1].then(piece) if self._closed else None
            if again is None:
                self._closed.append(piece)
            else:
                self._closed[-1] = again
        self._last = [step, value, 0, 1]


class Changes:
    """A value for each step, stored only where it changes."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Any]] = []

    def note(self, step: int, value: Any) -> None:
        if not self.kept or self.kept[-1][1] != value:
            self.kept.append((step, value))

    def at(self, step: int) -> Any:
        return next((value for first, value in reversed(self.kept) if first <= step), None)
