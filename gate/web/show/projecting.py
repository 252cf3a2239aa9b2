"""What admission went by: the projected volume, where the formula of the target is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....model.observation import Step
from ....model.scenario import Scenario
from ....model.spyre.state import State
from ....properties.spyre.explanations.admission import projected, states
from ....properties.spyre.explanations.explain import model_of
from .segments import Changes, Line


class Projected(NamedTuple):
    """One admission: the step, the request that joined, the largest tkv projected for each, and
    the largest batch x tkv that was looked at, in tokens."""

    step: int
    newcomer: str
    reaches: Mapping[str, int]
    largest: int


@dataclass
class Projections:
    """What was granted, and by step what was refused because of the limit: the request, and the
    largest batch x tkv that was projected."""

    granted: list[Projected] = field(default_factory=list)
    refused: Line = field(default_factory=Line)
    refused_to: Changes = field(default_factory=Changes)


def projections(scenario: Scenario, version: str, steps: Sequence[Step]) -> Projections:
    """The projections of a run, as long as the model that decides as this version decides alike.

    Nothing where no such model is known, or where it admits without a projection.
    """
    found = Projections()
    model = model_of(scenario, version)
    if model is None or not steps or ("paused" in model.observes and model.config.pausing):
        return found
    for number, state in enumerate(states(model, scenario, len(steps) - 1)):
        asked = projected(model, state, number)
        if asked is None:
            continue
        if _parted(state, steps, number):
            break
        if [*steps[number].scheduled] == [asked.newcomer]:
            granted = Projected(number, asked.newcomer, asked.projected, asked.largest)
            found.granted.append(granted)
        elif asked.largest > model.config.max_batch_tkv:
            found.refused.note(number, asked.largest)
            found.refused_to.note(number, asked.newcomer)
    return found


def _parted(state: State, steps: Sequence[Step], number: int) -> bool:
    """The model's batch in front of a step is not that of the target."""
    seen = steps[number - 1].computed if number else {}
    own = {one.id: one.computed for one in state.admitted}
    return seen is not None and any(tokens != own.get(name) for name, tokens in seen.items())
