"""What changes over the steps of a run, kept as what it is made of: straight pieces, and changes.

Most numbers of a run stay, or grow by one in every step: thousands of steps are a few pieces. A
page unrolls them again; no number is lost or rounded.
"""

from typing import Any, NamedTuple


class Piece(NamedTuple):
    """`steps` steps from step `first` on: `value`, value + slope, value + 2 slope …"""

    first: int
    value: int
    slope: int
    steps: int


class Line:
    """A number by step; steps that were not noted have none."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def note(self, step: int, value: int | None) -> None:
        """The number in a step, later than all that were noted; None: there is none."""
        if value is None:
            return
        last = self.pieces[-1] if self.pieces else None
        if last is None or last.first + last.steps != step:
            self.pieces.append(Piece(step, value, 0, 1))
            return
        if last.steps == 1:
            self.pieces[-1] = Piece(last.first, last.value, value - last.value, 2)
        elif last.value + last.slope * last.steps == value:
            self.pieces[-1] = last._replace(steps=last.steps + 1)
        else:
            self.pieces.append(Piece(step, value, 0, 1))

    def at(self, step: int) -> int | None:
        """The number in a step."""
        for first, value, slope, steps in reversed(self.pieces):
            if first <= step < first + steps:
                return value + slope * (step - first)
        return None

    def flat(self) -> list[int]:
        """All pieces in one list, four numbers each."""
        return [number for piece in self.pieces for number in piece]


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
