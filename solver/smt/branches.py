"""Decide which branches of a function are possible, with one solver for all paths.

Consecutive paths begin with the same conditions, so the solver keeps these.
"""

from typing import Any

import z3

from .numbers import Numbers
from .terms import Terms, address

# resource units of Z3 (`obligation.UNITS`) per branch; if Z3 does not decide in time, the branch
# counts as possible
UNITS = 10_000_000


class Branches:
    """The conditions on the current path, in the order in which the code met them.

    With `quick`, Z3 does not get definitions, for example of quotients.
    """

    def __init__(self, numbers: Numbers, *, quick: bool = False) -> None:
        self.numbers, self.quick, self.terms = numbers, quick, Terms()
        self._solver = z3.Solver()
        self._solver.set("rlimit", UNITS)
        self._known = 0  # how many facts about the numbers the solver has
        # Each condition, and how many facts the solver had before it. The terms are kept alive,
        # because Z3 reuses the addresses of terms that no longer exist.
        self._conditions: list[tuple[Any, int]] = []

    def take(self, at: int, condition: Any) -> None:
        """Put this condition at place `at` of the path, and forget the conditions after it. If it
        is already there, change nothing."""
        if at < len(self._conditions) and address(self._conditions[at][0]) == address(condition):
            return
        self._forget_from(at)
        self._conditions.append((condition, self._known))
        self._solver.push()
        self._solver.add(condition)

    def possible(self, at: int, condition: Any) -> bool:
        """Return whether the condition can hold at place `at` of the path, that is, together with
        the conditions before this place. If the solver cannot tell, return True. Forget the
        conditions from this place on."""
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
