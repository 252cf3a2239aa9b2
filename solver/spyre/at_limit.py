"""An admission sequence that uses a volume exactly (SPY-R07): as close to the limit as it gets."""

from dataclasses import replace

import z3

from ...model.scenario import Scenario
from ..smt.obligation import decide
from .volumetric import Setting, solution, to_scenario, violation

MAX_REQUESTS = 4


def using(setting: Setting, volume: int, revision: str, seconds: float) -> Scenario | None:
    """The fewest requests, two or more, of which the formula accepts all, and which in some step
    decode with batch x tkv of exactly `volume` tokens; None where Z3 finds none in time."""
    for requests in range(2, MAX_REQUESTS + 1):
        asked = replace(setting, requests=requests)
        problem = violation(asked, beyond=volume - 1)
        batch, tkv = problem.overrun
        exactly = z3.Or(
            [
                z3.And(batch == size, tkv == volume // size)
                for size in range(1, requests + 1)
                if volume % size == 0
            ]
        )
        answer, model = decide([*problem.facts, exactly], seconds)
        if answer == "sat" and model is not None:
            return to_scenario(asked, solution(problem, model), revision)
    return None
