"""Both shrinkers in turn: ours changes the scenario's structure, Hypothesis's its numbers."""

from collections.abc import Callable
from typing import NamedTuple

from ..model.scenario import Scenario
from .numbers_shrink import shrink_numbers
from .shrink import shrink


class Minimized(NamedTuple):
    """What both shrinkers came to.

    Attributes:
        scenario: the smallest one that still fails.
        attempts: replays that it took.
        by_numbers: Hypothesis saw the failure in what it was handed, each time.
    """

    scenario: Scenario
    attempts: int
    by_numbers: bool


def minimize(
    scenario: Scenario, still_fails: Callable[[Scenario], bool], attempts: int
) -> Minimized:
    """Alternate until neither gets any further, in at most `attempts` replays.

    Neither makes any number larger, so this ends. Ours, which comes first, leaves half of the
    replays to the other.
    """
    best, taken, by_numbers = scenario, 0, True

    def counted(candidate: Scenario) -> bool:
        nonlocal taken
        taken += 1
        return still_fails(candidate)

    while attempts > taken:
        before = best
        best = shrink(best, counted, (attempts - taken + 1) // 2)
        if taken < attempts:
            numbers = shrink_numbers(best, counted, attempts - taken)
            by_numbers &= numbers.reproduced
            best = numbers.scenario
        if best == before:
            break
    return Minimized(best, taken, by_numbers)
