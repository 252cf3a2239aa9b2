"""Which branches of a function are possible, asked of one solver for all its paths.

A path shares its first answers with the path before, so the solver keeps them.
"""

from typing import Any

import z3

from .numbers import Numbers

# resource units of Z3 (`obligation.UNITS`) per branch; an undecided branch is followed
UNITS = 10_000_000


class Branches:
    """The conditions on the path that is followed now, in the order in which they were answered.

    If `quick`, definitions (of quotients, say) are ignored.
    """

    def __init__(self, numbers: Numbers, *, quick: bool = False) -> None:
        self.numbers, self.quick = numbers, quick
        self._solver = z3.Solver()
        self._solver.set("rlimit", UNITS)
        self._known = 0  # how many facts about the numbers the solver has
        # Each condition, and how many facts the solver had before. Z3 gives the id of a term that
        # is gone to another one, so the terms are kept.
        self._conditions: list[tuple[Any, int]] = []

    def take(self, at: int, condition: Any) -> None:
        """Let a condition be the one with this number; those after it are forgotten, unless it is
        already there."""
        if at < len(self._conditions) and self._conditions[at][0].eq(condition):
            return
        self._forget_from(at)
        self._conditions.append((condition, self._known))
        self._solver.push()
        self._solver.add(condition)

    def possible(self, at: int, condition: Any) -> bool:
        """Return whether a condition can hold together with the first `at` ones."""
        self._forget_from(at)
        facts, left_out = self.numbers.facts, self.numbers.definitions if self.quick else ()
        self._solver.add([facts[at] for at in range(self._known, len(facts)) if at not in left_out])
        self._known = len(facts)
        return bool(self._solver.check(condition) != z3.unsat)

    def _forget_from(self, at: int) -> None:
        if at < len(self._conditions):
            self._solver.pop(len(self._conditions) - at)
            self._known = self._conditions[at][1]
            del self._conditions[at:]
