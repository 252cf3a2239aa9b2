"""What admissions went by: the projected volume, where the formula of the target is known."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...model.observation import Step
from ...model.scenario import Scenario
from ...model.spyre.state import State
from ...properties.explain import model_of
from ...properties.spyre.explain import joining, states


class Projected(NamedTuple):
    """One admission: the step, who joined, the largest tkv projected for each, and the largest
    batch x tkv of the projected future, in tokens."""

    step: int
    newcomer: str
    reaches: Mapping[str, int]
    largest: int


def projections(scenario: Scenario, version: str, steps: Sequence[Step]) -> list[Projected]:
    """The admissions of a run, as long as the model that decides as this version decides alike.

    Nothing where no such model is known, or where it admits without a projection.
    """
    model = model_of(scenario, version)
    if model is None or not steps or (model.revision.pauses and model.config.pausing):
        return []
    found = []
    for number, state in enumerate(states(model, scenario, len(steps) - 1)):
        joins = joining(model, state, number)
        if joins is None:
            continue
        if [*steps[number].scheduled] != [joins.newcomer] or _parted(state, steps, number):
            break
        found.append(Projected(number, joins.newcomer, joins.projected, joins.largest))
    return found


def _parted(state: State, steps: Sequence[Step], number: int) -> bool:
    """The model's batch in front of a step is not that of the target."""
    seen = steps[number - 1].computed if number else {}
    own = {one.id: one.computed for one in state.admitted}
    return seen is not None and any(tokens != own.get(name) for name, tokens in seen.items())
