"""Code of the model, run on symbols: every path that it can take, and its result there.

A function of whole numbers runs on `Number`s unchanged. Wherever it branches on a comparison of
them, both branches are followed if both are possible. So what is proven of the paths is proven of
the code.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import z3

from .numbers import Numbers

FEW = 16  # values that a number may have where code wants an index
PATIENCE = 2_000  # milliseconds to find out whether a branch is possible; then it is followed


class Path(NamedTuple):
    """One way through the code: the conditions under which it is taken, and the result."""

    conditions: list[Any]
    result: Any


class SymbolicRun:
    """A run that answers its first comparisons as given, and the others by what is possible.

    Attributes:
        numbers: the numbers that the code runs on.
        given: the answers to the first comparisons; later ones are answered yes if possible.
        taken: the answers so far; `conditions` are their meaning.
        others: for each later comparison that could also be answered no, the answers up to it.
    """

    def __init__(self, numbers: Numbers, given: list[bool]) -> None:
        self.numbers, self.given = numbers, given
        self.taken: list[bool] = []
        self.others: list[list[bool]] = []
        self.conditions: list[Any] = []
        self._solver = z3.Solver()
        self._solver.set("timeout", PATIENCE)
        self._known = 0

    def number(self, of: Any) -> "Number":
        return Number(self, of)

    def answer(self, condition: Any) -> bool:
        """Return whether a comparison holds on this path."""
        if len(self.taken) < len(self.given):
            holds = self.given[len(self.taken)]
        else:
            holds = self._possible(condition)
            if holds and self._possible(z3.Not(condition)):
                self.others.append([*self.taken, False])
        taken = condition if holds else z3.Not(condition)
        self.taken.append(holds)
        self.conditions.append(taken)
        self._solver.add(taken)
        return holds

    def split(self, number: Any, by: Any) -> tuple[Any, Any]:
        """Return quotient and remainder.

        Z3 decides faster if it knows that neither is negative. That must hold on every path, since
        a number is split once for all of them.
        """
        solver = z3.Solver()
        solver.set("timeout", PATIENCE)
        solver.add(self.numbers.facts)
        signed = solver.check(number < 0) != z3.unsat
        return self.numbers.split(number, by, None, signed=signed)

    def _possible(self, condition: Any) -> bool:
        self._solver.add(self.numbers.facts[self._known :])
        self._known = len(self.numbers.facts)
        return bool(self._solver.check(condition) != z3.unsat)


class Truth:
    """A comparison of symbols; converting it to bool decides it for the path."""

    __slots__ = ("of", "run")

    def __init__(self, run: SymbolicRun, of: Any) -> None:
        self.run, self.of = run, of

    def __bool__(self) -> bool:
        return self.run.answer(self.of)


class Number:
    """A whole number of a run, in symbols, with the operators of an int."""

    __slots__ = ("of", "run")

    def __init__(self, run: SymbolicRun, of: Any) -> None:
        self.run, self.of = run, of

    def _with(self, of: Any) -> Self:
        return type(self)(self.run, of)

    def __add__(self, other: Any) -> Self:
        return self._with(self.of + bare(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._with(self.of - bare(other))

    def __rsub__(self, other: Any) -> Self:
        return self._with(bare(other) - self.of)

    def __mul__(self, other: Any) -> Self:
        return self._with(self.of * bare(other))

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return self._with(-self.of)

    def __floordiv__(self, by: Any) -> Self:
        return self._with(self.run.split(self.of, bare(by))[0])

    def __mod__(self, by: Any) -> Self:
        return self._with(self.run.split(self.of, bare(by))[1])

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.run, self.of < bare(other))

    def __le__(self, other: Any) -> Truth:
        return Truth(self.run, self.of <= bare(other))

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.run, self.of > bare(other))

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.run, self.of >= bare(other))

    def __bool__(self) -> bool:
        return self.run.answer(self.of != 0)

    def __index__(self) -> int:
        """A path of its own for each value: for slices and ranges, of few."""
        for value in range(FEW + 1):
            if self.run.answer(self.of == value):
                return value
        raise OverflowError(f"{self.of} may be beyond {FEW}, or negative")

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.run, self.of == bare(other))

    __hash__ = None  # type: ignore[assignment]


def bare(number: Any) -> Any:
    return number.of if isinstance(number, Number) else number


def paths(numbers: Numbers, code: Callable[[SymbolicRun], Any]) -> Iterator[Path]:
    """Return every path of `code`, which gets the run to make its numbers with.

    A result that is a comparison is decided as well. Facts of `numbers` hold throughout.
    """
    waiting: list[list[bool]] = [[]]
    while waiting:
        run = SymbolicRun(numbers, waiting.pop())
        result = code(run)
        if isinstance(result, Truth):
            result = bool(result)
        yield Path(run.conditions, bare(result))
        waiting += run.others


def holds_on(numbers: Numbers, taken: Sequence[Path], claim: Callable[[Any], Any]) -> list[Any]:
    """Return facts that have no solution if the claim holds of the result of every path."""
    wrong = [z3.And(*path.conditions, z3.Not(claim(path.result))) for path in taken]
    return [*numbers.facts, z3.Or(wrong)]


@contextmanager
def stubbed(module: Any, **stubs: Any) -> Iterator[None]:
    """Put stubs in the place of what a module of the model calls, while its code runs."""
    before = {name: getattr(module, name) for name in stubs}
    try:
        for name, stub in stubs.items():
            setattr(module, name, stub)
        yield
    finally:
        for name, own in before.items():
            setattr(module, name, own)
