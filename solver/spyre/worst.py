"""How far a formula lets the limit be exceeded by so many requests: bisected, exactly."""

from collections.abc import Iterator
from typing import NamedTuple

import z3

from ..numbers import read
from .volumetric import Arrival, Setting, solution, violation


class Known(NamedTuple):
    """What is known so far, in tokens beyond the limit: somebody reached `reached` with
    `arrivals` (none if it is 0), and nobody exceeds `at_most`."""

    reached: int
    at_most: int
    arrivals: tuple[Arrival, ...]

    @property
    def exact(self) -> bool:
        """Nothing is left open."""
        return self.reached == self.at_most


def worst(setting: Setting) -> Iterator[Known]:
    """Narrow the worst volume of `setting.requests` down; ends early where Z3 cannot tell."""
    blocks = -(-setting.max_model_len // setting.block)
    beyond_all = setting.requests * blocks * setting.block - setting.limit
    known = Known(0, max(beyond_all, 0), ())
    while not known.exact:
        # The first question is whether the limit can be exceeded at all.
        above = (known.reached + known.at_most) // 2 if known.arrivals else 0
        problem = violation(setting, above=above)
        solver = z3.Solver()
        solver.add(problem.facts)
        answer = solver.check()
        if answer == z3.unknown:
            return
        if answer == z3.unsat:
            known = known._replace(at_most=above)
        else:
            batch, tkv = (read(solver.model(), number) for number in problem.overrun)
            found = tuple(solution(problem, solver.model()))
            known = known._replace(reached=batch * tkv - setting.limit, arrivals=found)
        yield known
