"""A failure replayed, made small, and replayed again: only then it counts."""

from collections.abc import Sequence

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.scenario import Scenario
from ...model.target import Target
from ...properties.checking.failure_signature import shape
from ...properties.checking.replay import replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import NEVER_HANGS
from ...properties.shrinking.shrink import HANG_ATTEMPTS, shrink
from ...spec.catalogue import Rule
from ..corpus.replay import expecting
from .items import Shrinking
from .results import Failure

ATTEMPTS = 400  # replays: counted, so that the same failure gets the same scenario everywhere
SLOW_ATTEMPTS = 60  # of a target that is not the model: a hundred times as slow


def shrunk(item: Shrinking, target: Target, rules: Sequence[Rule]) -> Failure | None:
    """The smallest scenario found that fails in the same shape, expecting to break what it breaks;
    None where the failure does not come again.

    It is judged by all of the `rules`, or by its own alone where another breaks before.
    """
    failure = item.failure
    own = [rule for rule in rules if rule.id == failure.rule]
    for asked in (rules, own):
        first = _first(target, failure.scenario, asked, failure.shape)
        if first:
            break
    else:
        return None
    last_step = first[0].step

    def still_fails(candidate: Scenario) -> bool:
        return bool(_first(target, candidate, asked, failure.shape, last_step))

    attempts = ATTEMPTS if item.target == "model" else SLOW_ATTEMPTS
    if failure.rule == NEVER_HANGS:
        attempts = HANG_ATTEMPTS
    small = shrink(failure.scenario, still_fails, attempts)
    broken = _first(target, small, asked, failure.shape) or first
    violates = [one.rule for one in broken]
    return Failure(
        rule=failure.rule,
        shape=failure.shape,
        message=broken[0].message,
        scenario=expecting(small, violates),
    )


def _first(
    target: Target,
    scenario: Scenario,
    rules: Sequence[Rule],
    own: str,
    last_step: int | None = None,
) -> list[Broken]:
    """The rules that a replay breaks first, if the first of them breaks in this shape."""
    try:
        broken = replay(target, scenario, rules, last_step=last_step).broken
    except (InputError, ConfigRefused):
        return []
    same = broken and shape(broken[0], [one.id for one in scenario.requests]) == own
    return broken if same else []
