"""Explanations of broken rules, by rule, for targets whose admission rule is known."""

from collections.abc import Callable
from dataclasses import replace

from ..model.errors import InputError
from ..model.scenario import Scenario
from ..model.spyre.model import SpyreModel
from ..model.spyre.revision import RELEASE_2_1_2
from ..model.spyre.volumetric import FORMULAS
from ..model.systems import make_model
from .spyre.explain import explain_idle, explain_volume

EXPLANATIONS: dict[str, Callable[[SpyreModel, Scenario, int], list[str]]] = {
    "SPY-R07": explain_volume,
    "SPY-R35": explain_idle,
}
# The formula of each release that has one of its own; 2.0.0 decides as 2.0.1, 2.1.1 as 2.1.2.
FORMULA_OF = {"2.0.0": "2.0.1", "2.1.1": "2.1.2"}


def explain(rule: str, scenario: Scenario, step: int, version: str) -> list[str]:
    """How the rule came to break, in sentences, or nothing where that is not known.

    `version` is what the target says of itself: a revision of the model, or a release.
    """
    explanation = EXPLANATIONS.get(rule)
    if explanation is None:
        return []
    try:
        model = make_model(scenario.system, scenario.revision or "", scenario.config)
    except InputError:
        return []
    formula = FORMULAS.get(FORMULA_OF.get(version, version))
    if formula is not None:
        model = SpyreModel(model.config, replace(RELEASE_2_1_2, projection=formula))
    elif version != model.revision.name:
        return []
    return explanation(model, scenario, step)
