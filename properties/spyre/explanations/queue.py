"""Why a request came before another one: by running the release's model."""

from ....model.scenario import Scenario
from ....model.spyre import documented
from ....model.spyre.model import SpyreModel
from .admission import states


def explain_forgotten_paused(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """How a prefill came to start before paused requests, or nothing."""
    *_, state = states(model, scenario, step)
    if state.running or not state.paused or model.revision.is_empty is documented.is_empty:
        return []
    paused = ", ".join(one.id for one in state.paused)
    return [
        f"the decoding requests have left, {paused} is paused and no request runs: an empty batch",
        "admits the next prefill before it is asked whether a request is paused",
    ]


def explain_passed_by(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """The request that started before the first in line, and how often it was refused, or
    nothing."""
    if model.revision.candidate is documented.candidate:
        return []
    *_, state = states(model, scenario, step)
    if not state.waiting:
        return []
    first = state.waiting[0]
    passed: list[str] = []
    for before in states(model, scenario, step):
        if first.id not in [one.id for one in before.waiting]:
            continue
        chosen = model.revision.candidate(model.config, model.revision, before)
        order = [one.id for one in before.waiting]
        if chosen is not None and chosen.id in order[order.index(first.id) + 1 :]:
            passed.append(chosen.id)
    if not passed:
        return []
    return [
        f"{first.id} is refused by the volume of the batch while later requests fit; "
        f"it is passed by: {', '.join(passed)},",
        "and each of them keeps the batch full: a refused request does not stop the queue",
    ]
