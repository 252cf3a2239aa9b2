"""Why a rule of Spyre broke, by rule, for targets whose admission rule is known."""

from collections.abc import Callable

from ....model.errors import InputError
from ....model.scenario import Scenario
from ....model.spyre.config import read_config
from ....model.spyre.model import REVISIONS, SpyreModel, admitting_by
from ....model.spyre.release_2_1_2 import RELEASE_2_1_2
from ....spec.systems import SYSTEMS
from .admission import (
    explain_join,
    explain_stale_refusal,
    explain_stale_tkv,
    explain_volume,
)
from .blocks import explain_lost_blocks, explain_published_ahead
from .queue import explain_forgotten_paused, explain_passed_by

Explanation = Callable[[SpyreModel, Scenario, int], list[str]]
EXPLANATIONS: dict[str, tuple[Explanation, ...]] = {
    "SPY-R07": (explain_volume,),
    "SPY-R47": (explain_join,),
    "SPY-R35": (explain_stale_tkv, explain_lost_blocks),
    "SPY-R42": (explain_stale_refusal,),
    "SPY-R38": (explain_lost_blocks,),
    "SPY-P02": (explain_lost_blocks,),
    "ALL-R05": (explain_lost_blocks, explain_passed_by),
    "SPY-R52": (explain_forgotten_paused,),
    "ALL-R08": (explain_published_ahead,),
}
# The formula of each release that has one of its own; 2.0.0 decides as 2.0.1.
FORMULA_OF = {"2.0.0": "2.0.1"}


def explain(rule: str, scenario: Scenario, step: int, version: str) -> list[str]:
    """How the rule came to break, in sentences, or nothing where that is not known.

    `version` is what the target says of itself: a revision of the model, or a release.
    """
    model = model_of(scenario, version)
    if model is None:
        return []
    reported = (explanation(model, scenario, step) for explanation in EXPLANATIONS.get(rule, ()))
    return next((lines for lines in reported if lines), [])


def model_of(scenario: Scenario, version: str) -> SpyreModel | None:
    """The model that decides as this version does, a revision or a release, if there is one."""
    try:
        config = read_config(scenario.config, scenario.revision or "")
    except InputError:
        return None
    revision = REVISIONS.get(SYSTEMS["spyre"].decides_as.get(version, version))
    if revision is None:
        revision = admitting_by(RELEASE_2_1_2, FORMULA_OF.get(version, version))
    return SpyreModel(config, revision) if revision is not None else None
