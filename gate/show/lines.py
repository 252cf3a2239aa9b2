"""What changes over the steps of a run, kept as what it is made of: straight pieces, and changes.

Most numbers of a run stay, or grow by one in every step: thousands of steps are a few pieces. A
page takes them apart again; no number is lost or rounded.
"""

from typing import Any


class Line:
    """A number by step; steps that were not noted have none.

    `pieces`: [first step, value, slope, steps] each, for value, value + slope, value + 2 slope …
    """

    __slots__ = ("_due", "_last", "_next", "pieces")

    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self._last: list[int] = []
        self._next = -1  # the step after the last one
        self._due = 0  # the value that the last piece would go on with

    def note(self, step: int, value: int | None) -> None:
        """The number in a step, later than all that were noted; None: there is none."""
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
        """The number in a step."""
        for first, value, slope, steps in reversed(self.pieces):
            if first <= step < first + steps:
                return value + slope * (step - first)
        return None

    def flat(self) -> list[int]:
        """All pieces in one list, four numbers each."""
        return [number for piece in self.pieces for number in piece]

    def _begin(self, step: int, value: int) -> None:
        self._last = [step, value, 0, 1]
        self.pieces.append(self._last)


class Changes:
    """A value by step, kept where it changes."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Any]] = []

    def note(self, step: int, value: Any) -> None:
        """The value in a step, later than all that were noted."""
        if not self.kept or self.kept[-1][1] != value:
            self.kept.append((step, value))

    def at(self, step: int) -> Any:
        """The value in a step, None before the first."""
        return next((value for first, value in reversed(self.kept) if first <= step), None)
