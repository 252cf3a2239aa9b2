"""Why a rule broke, in the terms of the scheduler, where its system has words for it."""

from collections.abc import Callable

from ...model.scenario import Scenario
from ...spec.systems import part


def explain(rule: str, scenario: Scenario, step: int, version: str) -> list[str]:
    """Return how the rule came to break, in sentences; nothing where that is not known.

    `version` is what the target says of itself: a revision of the model, or a release.
    """
    explainer: Callable[[str, Scenario, int, str], list[str]] | None
    explainer = part(scenario.system, "explain")
    return [] if explainer is None else explainer(rule, scenario, step, version)
