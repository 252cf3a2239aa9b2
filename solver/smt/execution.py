"""Symbolic execution of model code: every path that it can take, with its result.

A function of integers runs unchanged on `Number`s. When it branches on a comparison of `Number`s,
every possible branch is followed. A proof about all these paths is therefore a proof about the
code. `merged` combines the paths into one term.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, Self

import z3

from .branches import Branches
from .numbers import Numbers
from .terms import address, all_of, decision_tree

FEW = 16  # the largest number that code may use as an index
MAX_PATHS = 256  # for a function whose paths are combined
AT_ONCE = 64  # how many paths `holds_on` looks at before it asks whether the claim fails
MOST_PATHS = 25_000  # for any function; the step itself has up to 10,000
MAX_ANSWERS = 250  # branches on a path; a loop bounded only by a symbol never ends


class Path(NamedTuple):
    """One path through the code: the conditions under which it is taken, and the result."""

    conditions: list[Any]
    result: Any

    @property
    def condition(self) -> Any:
        return all_of(*self.conditions, True)


class SymbolicRun:
    """One run of the code. The answers to its first comparisons are given. Each later comparison
    gets an answer that is possible.

    Attributes:
        numbers: the numbers on which the code runs.
        given: the answers to the first comparisons. Later comparisons are answered with yes if that
            is possible.
        taken: the answers so far; `conditions` contains the corresponding terms.
        others: the paths that are still to be followed. Each is a list of answers: the ones before
            a comparison that could also be answered with no, followed by no.
    """

    def __init__(self, branches: Branches, given: list[bool]) -> None:
        self.numbers, self.given = branches.numbers, given
        self.taken: list[bool] = []
        self.others: list[list[bool]] = []
        self.conditions: list[Any] = []
        self._branches, self.terms = branches, branches.terms
        self._answers: dict[int, bool] = {}
        # kept alive, because Z3 reuses the addresses of terms that no longer exist
        self._answered: list[Any] = []

    def number(self, of: Any) -> Any:
        """Return a symbolic number, which the code uses like an int."""
        return Number(self, of)

    def truth(self, of: Any) -> Any:
        """Return a comparison, which the code uses like a bool. It is decided when the code reads
        it."""
        return Truth(self, of)

    def answer(self, condition: Any) -> bool:
        """Return whether a comparison holds on this path; repeated calls give the same answer.

        Raises:
            TooManyPathsError: the path does not end.
        """
        known = self._answers.get(address(condition))
        if known is not None:
            return known
        if len(self.taken) == MAX_ANSWERS:
            raise TooManyPathsError(f"has a path with more than {MAX_ANSWERS} branches")
        at = len(self.taken)
        if at < len(self.given):
            holds = self.given[at]
        else:
            holds = self._branches.possible(at, condition)
            if holds and self._branches.possible(at, self.terms.negated(condition)):
                self.others.append([*self.taken, False])
        taken = condition if holds else self.terms.negated(condition)
        self._answers[address(condition)] = holds
        self._answered.append(condition)
        self.taken.append(holds)
        self.conditions.append(taken)
        self._branches.take(at, taken)
        return holds

    def split(self, number: Any, by: Any) -> tuple[Any, Any]:
        """Return quotient and remainder as Python defines them: rounded down, even below zero.

        Z3 decides faster if it knows that the number is not negative and that the divisor is
        positive. These facts are used only if they hold on every path, because all paths share the
        result.

        Raise ZeroDivisionError if the divisor is zero on this path.
        """
        if isinstance(number, int):
            number = z3.IntVal(number)
        if self.numbers.is_split(number, by):
            return self.numbers.split(number, by, None)
        positive = by > 0 if isinstance(by, int) else self.numbers.always(by > 0)
        if not positive:
            if by == 0 if isinstance(by, int) else self.answer(by == 0):
                raise ZeroDivisionError("division by zero")
            if by < 0 if isinstance(by, int) else self.answer(by < 0):
                quotient, remainder = self.split(-number, -by)
                return quotient, -remainder
        signed = not self.numbers.always(number >= 0)
        return self.numbers.split(number, by, None, signed=signed, positive=positive)

    def forget(self) -> None:
        """Free the caches of the run, but not its numbers, because the result may still contain
        them."""
        del self._branches
        self._answered.clear()
        self._answers.clear()


class Truth:
    """A comparison of symbols; converting it to bool decides it for this path."""

    __slots__ = ("of", "run")

    def __init__(self, run: SymbolicRun, of: Any) -> None:
        self.run, self.of = run, of

    def __bool__(self) -> bool:
        return self.run.answer(self.of)

    def __eq__(self, other: object) -> "Truth":  # type: ignore[override]
        if isinstance(other, Truth | bool):
            return Truth(self.run, self.of == condition(other))
        if isinstance(other, Number | int):
            return Truth(self.run, bare(self) == bare(other))
        raise UndecidedError("compares a comparison with something else")

    __hash__ = None  # type: ignore[assignment]


class Number:
    """A symbolic integer of a run, with the operators of an int. The result of an operation on a
    `counted` number is counted as well."""

    __slots__ = ("counts_more", "of", "run")
    counts_more: Any

    def __init__(self, run: SymbolicRun, of: Any) -> None:
        self.run, self.of = run, of

    def _with(self, of: Any, other: Any = None) -> Self:
        made = type(self)(self.run, of)
        for number in (other, self):
            if isinstance(number, Number) and hasattr(number, "counts_more"):
                made.counts_more = number.counts_more
        return made

    def _made(self, operation: Callable[[Any, Any], Any], other: Any) -> Any:
        return self.run.terms.made(operation, self.of, bare(other))

    def __add__(self, other: Any) -> Self:
        return self._with(self._made(operator.add, other), other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._with(self._made(operator.sub, other), other)

    def __rsub__(self, other: Any) -> Self:
        return self._with(self.run.terms.made(operator.sub, bare(other), self.of), other)

    def __mul__(self, other: Any) -> Self:
        return self._with(self._made(operator.mul, other), other)

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return self._with(-self.of)

    def __invert__(self) -> Self:
        return self._with(-self.of - 1)

    def __abs__(self) -> Self:
        return self._with(z3.If(self.of < 0, -self.of, self.of))

    def __pos__(self) -> Self:
        return self

    # A whole number is its own floor and ceiling.
    __floor__ = __ceil__ = __round__ = __trunc__ = __pos__

    def __divmod__(self, by: Any) -> tuple[Self, Self]:
        quotient, remainder = self.run.split(self.of, bare(by))
        return self._with(quotient, by), self._with(remainder, by)

    def __rdivmod__(self, number: Any) -> tuple[Self, Self]:
        return self._with(bare(number), number).__divmod__(self)

    def __floordiv__(self, by: Any) -> Self:
        return self.__divmod__(by)[0]

    def __rfloordiv__(self, number: Any) -> Self:
        return self.__rdivmod__(number)[0]

    def __mod__(self, by: Any) -> Self:
        return self.__divmod__(by)[1]

    def __rmod__(self, number: Any) -> Self:
        return self.__rdivmod__(number)[1]

    def __truediv__(self, by: Any) -> "Ratio":
        return Ratio(self, by)

    def __rtruediv__(self, number: Any) -> "Ratio":
        return Ratio(self._with(bare(number)), self)

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.run, self._made(operator.lt, other))

    def __le__(self, other: Any) -> Truth:
        return Truth(self.run, self._made(operator.le, other))

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.run, self._made(operator.gt, other))

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.run, self._made(operator.ge, other))

    def __bool__(self) -> bool:
        return self.run.answer(self._made(operator.ne, 0))

    def __index__(self) -> int:
        """Return the value as an int, on a separate path for each value. Slices and ranges call
        this method. It works only for small numbers."""
        for value in range(FEW + 1):
            if self.run.answer(self._made(operator.eq, value)):
                return value
        raise OverflowError(f"{self.of} may be beyond {FEW}, or negative")

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.run, self._made(operator.eq, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise UndecidedError("writes a number out")

    def __format__(self, _: str) -> str:
        """Return a text for messages. Code may only pass the text on (`smt.kinds`)."""
        return "a number"


class Ratio(NamedTuple):
    """One number divided by another, for `math.floor` and `math.ceil` only."""

    number: Number
    by: Any

    def __floor__(self) -> Number:
        return self.number.__divmod__(self.by)[0]

    def __ceil__(self) -> Number:
        return -(-self.number).__divmod__(self.by)[0]


def bare(number: Any) -> Any:
    if isinstance(number, Truth):  # True counts as 1 in a sum
        return z3.If(number.of, 1, 0)
    return number.of if isinstance(number, Number) else number


class UndecidedError(Exception):
    """Raised if code does something that leaves a claim about it undecided. The message completes
    the sentence "the code ..."."""


class BeyondPrefixError(Exception):
    """Raised if the code looks at an unknown part of a sequence. Its path ends there."""


class TooManyPathsError(UndecidedError):
    """Raised if a function has too many paths to follow, or to combine into one term."""


def merged(numbers: Numbers, code: Callable[[SymbolicRun], Any]) -> Any:
    """Return one term that equals the result of `code` on every path.

    Raise TooManyPathsError if there are more than MAX_PATHS.
    """
    taken = list(islice(paths(numbers, code), MAX_PATHS + 1))
    if len(taken) > MAX_PATHS:
        raise TooManyPathsError(f"has more than {MAX_PATHS} paths")
    *others, last = taken
    result = last.result
    for path in others:
        result = z3.If(path.condition, path.result, result)
    return z3.IntVal(result) if isinstance(result, int) else result


def paths(
    numbers: Numbers, code: Callable[[SymbolicRun], Any], *, quick: bool = False
) -> Iterator[Path]:
    """Yield every path of `code`. `code` receives the run, and makes its numbers with it.

    With `quick`, definitions (for example of quotients) are ignored when checking whether a branch
    is possible. This is much faster, but also yields some paths that no numbers can take. If the
    result is a comparison, it is decided as well. The facts of `numbers` hold on every path. Two
    kinds of paths are left out: those that read the unknown part of a sequence, and those that no
    numbers can take and that end in an exception, for example from an `assert`.

    Raise TooManyPathsError if there are more than MOST_PATHS, or if a path does not end.
    """
    waiting: list[list[bool]] = [[]]
    branches, tried = Branches(numbers, quick=quick), 0
    while waiting:
        if tried == MOST_PATHS:
            raise TooManyPathsError(f"has more than {MOST_PATHS:,} paths")
        tried += 1
        run = SymbolicRun(branches, waiting.pop())
        try:
            result = code(run)
        except BeyondPrefixError:
            result = _NO_RESULT
        except Exception:
            if not numbers.always(z3.Not(all_of(*run.conditions, True))):
                raise
            result = _NO_RESULT
        if isinstance(result, Truth):
            result = bool(result)
        run.forget()
        if result is not _NO_RESULT:
            yield Path(run.conditions, bare(result))
        waiting += run.others


_NO_RESULT = object()


class Once:
    """Paths that can be iterated over many times. Each path is found only once, and only when it is
    read for the first time."""

    def __init__(self, found: Iterator[Path]) -> None:
        self._rest, self._found = found, list[Path]()
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Path]:
        at = 0
        while True:
            if at == len(self._found) and not self._find():
                return
            yield self._found[at]
            at += 1

    def _find(self) -> bool:
        """Find another path. If the search has ended with an error, raise the error again."""
        if self._error is not None:
            raise self._error
        try:
            self._found.append(next(self._rest))
        except StopIteration:
            return False
        except Exception as error:
            self._error = error
            raise
        return True


def holds_on(numbers: Numbers, taken: Iterable[Path], claim: Callable[[Any], Any]) -> list[Any]:
    """Return facts that have a solution if and only if the claim fails on some path.

    If the claim fails on an early path, `taken` is not read to its end.
    """
    wrong, asked = list[tuple[list[Any], Any]](), 0
    known = dict[int, tuple[Any, Any]]()  # by the address of a claim, which it keeps alive
    for path in taken:
        claimed = all_of(claim(path.result))
        if address(claimed) not in known:
            known[address(claimed)] = claimed, z3.simplify(claimed)
        _, simple = known[address(claimed)]
        if not z3.is_true(simple):
            wrong.append((path.conditions, z3.Not(simple)))
        if len(wrong) == asked + AT_ONCE:
            if numbers.possible(decision_tree(wrong[asked:])):
                wrong = wrong[asked:]
                break
            asked = len(wrong)
    return [*numbers.facts, decision_tree(wrong)]


@contextmanager
def stubs(module: Any, **stubs: Any) -> Iterator[None]:
    """Within the block, put stubs in place of functions, or builtins, that a module calls.

    Raise AttributeError if the module has no such name.
    """
    own = vars(module)
    builtins = own["__builtins__"]
    if unknown := [name for name in stubs if name not in own and name not in builtins]:
        raise AttributeError(f"{module.__name__} has no {', '.join(unknown)}")
    before = {name: own[name] for name in stubs if name in own}
    try:
        own.update(stubs)
        yield
    finally:
        for name in stubs:
            del own[name]
        own.update(before)


class SymbolicLength:
    """A sequence whose length is a symbol and whose items are unknown."""

    def __init__(self, length: Number) -> None:
        self.length = length

    def __bool__(self) -> bool:
        return bool(self.length >= 1)

    def __iter__(self) -> Iterator[Any]:
        raise UndecidedError("looks at items of a sequence whose items are unknown")

    def __eq__(self, other: object) -> bool:
        raise UndecidedError("compares a sequence whose length is unknown")

    __hash__ = None  # type: ignore[assignment]


class Prefix:
    """A sequence of any length. Only its first items are known.

    Its length is a symbol. When code iterates over the sequence, each possible number of items
    becomes a path. Reading an unknown item raises BeyondPrefixError.
    """

    def __init__(self, known: list[Any], length: Number) -> None:
        self.known, self.length = known, length

    def __bool__(self) -> bool:
        return bool(self.length >= 1)

    def __eq__(self, other: object) -> bool:
        raise UndecidedError("compares a sequence whose length is unknown")

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Any]:
        for at, item in enumerate(self.known):
            if not self.length > at:
                return
            yield item
        if self.length > len(self.known):
            raise BeyondPrefixError


class Queue(Prefix):
    """A sequence of any length. Its last known item represents all later items. That item must
    count for all of them (`counts_more`), so that a copy of the sequence has the same length."""

    def __iter__(self) -> Iterator[Any]:
        for at, item in enumerate(self.known):
            if not self.length > at:
                return
            yield item

    def __getitem__(self, at: Any) -> Any:
        if at == 0 and self:
            return self.known[0]
        return tuple(self)[at]

    def __add__(self, other: Any) -> Any:
        return (*self, *other)

    def __radd__(self, other: Any) -> Any:
        return (*other, *self)


def count_as_more(number: Any, more: Any) -> Any:
    """Return the number, marked as belonging to an item that represents `more` additional items."""
    if isinstance(number, Number):
        number = Number(number.run, number.of)
        number.counts_more = more
    return number


def count_like(number: Any, other: Any) -> Any:
    """Return the number, marked as belonging to the same item as `other`."""
    return count_as_more(number, other.counts_more) if hasattr(other, "counts_more") else number


def condition(value: "Truth | bool") -> Any:
    """Return a comparison as a term, whether or not it is decided."""
    return value.of if isinstance(value, Truth) else z3.BoolVal(bool(value))
