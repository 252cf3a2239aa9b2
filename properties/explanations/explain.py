"""Explain why a rule broke, and what admission projected, for systems that have explanations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...model.observation import Step
from ...model.scenario import Scenario
from ...spec.systems import part


class Projected(NamedTuple):
    """The projection made when a request asked to join the batch.

    Attributes:
        step: number of the step, from 0.
        newcomer: the request that asked to join.
        reaches: for each request, the largest tkv, in tokens, that it can still reach.
        largest: the largest batch x tkv that the check considered, in tokens.
        joined: whether the newcomer ran in this step; otherwise the limit refused it.
    """

    step: int
    newcomer: str
    reaches: Mapping[str, int]
    largest: int
    joined: bool


def projections(scenario: Scenario, version: str, steps: Sequence[Step]) -> list[Projected]:
    """Return the projections of a run, in the order of the steps; none if they are unknown.

    `version` is what the target reports: a revision of the model, or a release.
    """
    own: Callable[[Scenario, str, Sequence[Step]], Iterable[Projected]] | None
    own = part(scenario.system, "projections")
    return [] if own is None else [*own(scenario, version, steps)]


def explain(rule: str, scenario: Scenario, step: int, version: str) -> list[str]:
    """Return sentences that explain how the rule came to break; none if unknown.

    `version` is what the target reports: a revision of the model, or a release.
    """
    explainer: Callable[[str, Scenario, int, str], list[str]] | None
    explainer = part(scenario.system, "explain")
    return [] if explainer is None else explainer(rule, scenario, step, version)
