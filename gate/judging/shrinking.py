"""A finding is made smaller before it is kept."""

import time

from ...model.faults import ConfigRefused
from ...model.scenario import Scenario
from ...properties.checking.replay import replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import NEVER_HANGS
from ...properties.shrinking.shrink import shrink, until
from .context import GateContext
from .events import Progress
from .findings import Place, confirm, keep

# What an shrink model takes for so many trials, a real release takes for one.
SHRINK_MODEL_ATTEMPTS = 20


def shrink_and_keep(
    gate: GateContext,
    place: Place,
    found: Scenario,
    first: Broken,
    attempts: int,
    found_after: float,
    shrunk_in: float = 0.0,
) -> frozenset[str]:
    """Keep the smallest scenario that breaks the same rule, in at most so many trials: on the
    shrink model where there is one, and then on the target. Returns the rules that it breaks in
    its last step.

    `found_after`, `shrunk_in`: seconds until it broke, and those that it was shrunk already. Ctrl-C
    ends the shrinking; what there is by then is kept.

    Raises:
        TargetBroken: the same scenario does not break the rule again.
    """
    smallest, target, rules = found, gate.target, gate.rules_beyond(place.known)
    began, trials, steps = time.monotonic(), 0, 0

    def still_breaks(candidate: Scenario) -> bool:
        nonlocal smallest, trials, steps
        trials += 1
        name = f"making {first.rule} smaller, {place.scale}"
        gate.report(Progress(name, trials, 0, steps, shrinking=True))
        try:
            ended = replay(target, candidate, rules, last_step=first.step, new=gate.deviations.new)
        except ConfigRefused:  # plainer, but not for this target
            return False
        steps += ended.steps
        again = ended.broken
        if not again or again[0].rule != first.rule:
            return False
        smallest = candidate
        return True

    if first.rule == NEVER_HANGS:  # each trial would cost the time limit of a step
        attempts, smallest = 0, until(found, first.step)
    try:
        if gate.shrink_model is not None and attempts:
            target = gate.shrink_model
            if still_breaks(smallest):
                shrink(smallest, still_breaks, SHRINK_MODEL_ATTEMPTS * attempts)
            target = gate.target
            if smallest is not found and not still_breaks(smallest):
                smallest = found
        if smallest is found and attempts:
            shrink(smallest, still_breaks, attempts)
    finally:
        outcome = confirm(gate, place, smallest, first)
        seconds = shrunk_in + time.monotonic() - began
        keep(gate, place, smallest, outcome, found_after, seconds)
    return frozenset(one.rule for one in outcome.broken)
