"""Integers for Z3, with division.

A quotient and a remainder are two new symbols, tied to the number by a linear fact. Z3 decides this
much faster than its own `div` and `mod`.
"""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import z3

# resource units of Z3 (`obligation.UNITS`) to decide whether a condition follows
UNITS = 10_000_000


@dataclass
class Numbers:
    """The numbers of one problem, and the facts that hold for them.

    Attributes:
        facts: facts about the numbers made so far. Give them to the solver with every question.
        definitions: the indices of the facts that only define a quotient, a remainder or a maximum.
    """

    facts: list[Any] = field(default_factory=list)
    definitions: set[int] = field(default_factory=set)
    _made: int = 0
    _solver: Any = None
    _known: int = 0  # how many facts the solver has
    _splits: dict[tuple[int, int], tuple[Any, Any, Any]] = field(default_factory=dict)
    _extremes: dict[tuple[int, ...], tuple[Any, list[Any]]] = field(default_factory=dict)

    def fresh(self, name: str, low: int | None = None, high: Any = None) -> Any:
        """Return a new symbol between `low` and `high`, both inclusive; None means unbounded."""
        self._made += 1
        made = z3.Int(f"{name}!{self._made}")
        if low is not None:
            self.facts.append(made >= low)
        if high is not None:
            self.facts.append(made <= high)
        return made

    def always(self, condition: Any) -> bool:
        """Return whether the condition follows from the facts. Return False if Z3 gives up."""
        return bool(self._check(z3.Not(condition)) == z3.unsat)

    def possible(self, condition: Any) -> bool:
        """Return whether the condition can hold. Return False if Z3 gives up."""
        return bool(self._check(condition) == z3.sat)

    def _check(self, condition: Any) -> Any:
        if self._solver is None:
            self._solver = z3.Solver()
            self._solver.set("rlimit", UNITS)
        self._solver.add(self.facts[self._known :])
        self._known = len(self.facts)
        return self._solver.check(condition)

    def split(
        self, number: Any, by: Any, most: int | None, *, signed: bool = False, positive: bool = True
    ) -> tuple[Any, Any]:
        """Return quotient and remainder of a number. Unless `signed` is set, the number must not be
        negative.

        `most`, if given, is an upper bound on the quotient. `by` may be symbolic; the fact is then
        not linear. Without `positive`, `by` may be 0 or negative, but the results are meaningful
        only if it is positive.
        """
        key = _split_key(number, by)
        if key not in self._splits:
            before = len(self.facts)
            least = None if most is None else -most
            quotient = self.fresh("quotient", least if signed else 0, most)
            remainder = self.fresh("remainder", 0, by - 1 if positive else None)
            whole = number == quotient * by + remainder
            self.facts.append(
                whole if positive else z3.Implies(by > 0, z3.And(whole, remainder < by))
            )
            self.definitions.update(range(before, len(self.facts)))
            # Keep both terms alive: Z3 reuses the ids of terms that no longer exist.
            self._splits[key] = (quotient, remainder, (number, by))
        quotient, remainder, _ = self._splits[key]
        return quotient, remainder

    def define(self, facts: list[Any]) -> None:
        self.definitions.update(range(len(self.facts), len(self.facts) + len(facts)))
        self.facts += facts

    def is_split(self, number: Any, by: Any) -> bool:
        return _split_key(number, by) in self._splits

    def tell_quotients(self, by: int) -> None:
        """Give Z3 the fact that quotients by `by` are monotonic, which it would be slow to find
        out. A larger number never has a smaller quotient, and a number that is larger by at least
        `by` has a larger quotient."""
        same = [
            (number, quotient)
            for quotient, _, (number, of) in self._splits.values()
            if isinstance(of, int) and of == by
        ]
        for (smaller, whole), (larger, more) in permutations(same, 2):
            self.facts.append(z3.Implies(smaller <= larger, whole <= more))
            self.facts.append(z3.Implies(smaller + by <= larger, whole + 1 <= more))

    def extreme(self, numbers: list[Any], *, least: bool = False) -> Any:
        """Return a new symbol that equals the largest of the numbers or, with `least`, the
        smallest."""
        key = (int(least), *(number.get_id() for number in numbers))
        if key not in self._extremes:
            extreme = self.fresh("extreme")
            self.define([extreme <= number if least else extreme >= number for number in numbers])
            self.define([z3.Or([extreme == number for number in numbers])])
            self._extremes[key] = (extreme, numbers)  # keeps the terms alive, and so their ids
        return self._extremes[key][0]

    def largest(self, numbers: list[Any]) -> Any:
        top = numbers[0]
        for number in numbers[1:]:
            top = z3.If(number > top, number, top)
        return top

    def largest_of(self, name: str, numbers: list[tuple[Any, Any]]) -> Any:
        """Return the largest of those numbers whose condition holds, or 0 if no condition holds.
        The numbers must not be negative.

        The result is a new symbol, because Z3 decides this faster than nested `If` terms.
        """
        top = self.fresh(name, 0)
        self.facts += [z3.Implies(holds, number <= top) for holds, number in numbers]
        none_holds = z3.And(top == 0, *(z3.Not(holds) for holds, _ in numbers))
        self.facts.append(
            z3.Or(none_holds, *(z3.And(holds, number == top) for holds, number in numbers))
        )
        return top

    def count(self, conditions: list[Any]) -> Any:
        ones = [z3.If(condition, 1, 0) for condition in conditions]
        return sum(ones[1:], ones[0]) if ones else z3.IntVal(0)


def _split_key(number: Any, by: Any) -> tuple[int, int]:
    return number.get_id(), by if isinstance(by, int) else -by.get_id()


def value_in(model: z3.ModelRef, number: Any) -> int:
    """Return the value of a number in a solution. If Z3 leaves the value open, return the smallest
    possible value."""
    return int(model.eval(number, model_completion=True).as_long())


def negated(numbers: Numbers, claim: Any) -> list[Any]:
    """Return facts that have no solution if the claim holds."""
    return [*numbers.facts, z3.Not(claim)]


def tell_multiples(numbers: Numbers, size: Any, *wholes: Any) -> None:
    """Give Z3 the fact that of two multiples of `size`, the larger one is larger by at least
    `size`.

    The lemmas `more_chunks_are_one_chunk_more` and `more_blocks_are_one_block_more` prove this.
    """
    numbers.facts += [
        z3.Implies(number > other, number * size >= (other + 1) * size)
        for number, other in permutations(wholes, 2)
    ]
