"""Code of the model, run on symbols: every path that it can take, and its result there.

A function of whole numbers runs on `Number`s unchanged. Wherever it branches on a comparison of
them, both branches are followed if both are possible. So what is proven of the paths is proven of
the code.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import z3

from .numbers import Numbers

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
        quick: leave out definitions (of quotients, say) when finding out what is possible. That is
            much faster, and follows some paths that no numbers take.
        taken: the answers so far; `conditions` are their meaning.
        others: for each later comparison that could also be answered no, the answers up to it.
    """

    def __init__(self, numbers: Numbers, given: list[bool], *, quick: bool = False) -> None:
        self.numbers, self.given, self.quick = numbers, given, quick
        self.taken: list[bool] = []
        self.others: list[list[bool]] = []
        self.conditions: list[Any] = []
        self._solver = z3.Solver()
        self._solver.set("timeout", PATIENCE)
        self._known = 0
        self._answers: dict[int, bool] = {}
        self._asked: list[Any] = []  # alive, or Z3 gives their ids to other terms

    def number(self, of: Any) -> "Number":
        return Number(self, of)

    def answer(self, condition: Any) -> bool:
        """Return whether a comparison holds on this path; the same answer whenever it is asked."""
        known = self._answers.get(condition.get_id())
        if known is not None:
            return known
        if len(self.taken) < len(self.given):
            holds = self.given[len(self.taken)]
        else:
            holds = self._possible(condition)
            if holds and self._possible(z3.Not(condition)):
                self.others.append([*self.taken, False])
        taken = condition if holds else z3.Not(condition)
        self._answers[condition.get_id()] = holds
        self._asked.append(condition)
        self.taken.append(holds)
        self.conditions.append(taken)
        self._solver.add(taken)
        return holds

    def split(self, number: Any, by: Any) -> tuple[Any, Any]:
        """Return quotient and remainder.

        Z3 decides faster if it knows that neither is negative. That must hold on every path, since
        a number is split once for all of them.
        """
        if self.numbers.is_split(number, by):
            return self.numbers.split(number, by, None)
        solver = z3.Solver()
        solver.set("timeout", PATIENCE)
        solver.add(self.numbers.facts)
        signed = solver.check(number < 0) != z3.unsat
        return self.numbers.split(number, by, None, signed=signed)

    def forget(self) -> None:
        """Free what only the run needed; its numbers may live on in the result."""
        del self._solver
        self._asked.clear()
        self._answers.clear()

    def _possible(self, condition: Any) -> bool:
        facts, left_out = self.numbers.facts, self.numbers.definitions if self.quick else ()
        self._solver.add([facts[at] for at in range(self._known, len(facts)) if at not in left_out])
        self._known = len(facts)
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

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.run, self.of == bare(other))

    __hash__ = None  # type: ignore[assignment]


def bare(number: Any) -> Any:
    return number.of if isinstance(number, Number) else number


def paths(
    numbers: Numbers, code: Callable[[SymbolicRun], Any], *, quick: bool = False
) -> Iterator[Path]:
    """Return every path of `code`, which gets the run to make its numbers with.

    `quick`: see `SymbolicRun`. A result that is a comparison is decided as well. Facts of `numbers`
    hold throughout.
    """
    waiting: list[list[bool]] = [[]]
    while waiting:
        run = SymbolicRun(numbers, waiting.pop(), quick=quick)
        result = code(run)
        if isinstance(result, Truth):
            result = bool(result)
        run.forget()
        yield Path(run.conditions, bare(result))
        waiting += run.others
