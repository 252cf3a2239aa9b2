"""The projected volume by which a run of Spyre admitted its requests."""

from collections.abc import Iterator, Sequence

from ...model.observation import Step
from ...model.scenario import Scenario
from ...model.spyre.state import State
from ..explanations.projections import Projected
from .explanations import model_of, projected, states


def projections(scenario: Scenario, version: str, steps: Sequence[Step]) -> Iterator[Projected]:
    """Yield the projections of a run, for as long as the model of this version decides alike.

    There are none where no such model is known, or where it admits without a projection.
    """
    model = model_of(scenario, version)
    if model is None or not steps:
        return
    if "paused" in model.observes and model.config.pausing:  # it pauses, and projects nothing
        return
    for number, state in enumerate(states(model, scenario, len(steps) - 1)):
        admission = projected(model, state, number)
        if admission is None:
            continue
        if _parted(state, steps, number):
            return
        joined = [*steps[number].scheduled] == [admission.newcomer]
        if joined or admission.largest > model.config.max_batch_tkv:
            yield Projected(
                *(number, admission.newcomer, admission.projected, admission.largest, joined)
            )


def _parted(state: State, steps: Sequence[Step], number: int) -> bool:
    """The model's batch in front of a step is not that of the target."""
    seen = steps[number - 1].computed if number else {}
    own = {request.id: request.computed for request in state.admitted}
    return seen is not None and any(tokens != own.get(name) for name, tokens in seen.items())
