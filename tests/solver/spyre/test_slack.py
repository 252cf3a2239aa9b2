"""How much slack makes a formula sound: a run with a token less, and the lemmas with it."""

from dataclasses import replace

import pytest

from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.spyre.slack import enough, needed
from schedproof.solver.spyre.volumetric import Setting, to_scenario
from schedproof.spec.catalogue import load, select

LIMIT_RULE = select(load("spyre"), ["SPY-R07"])


def breaks(formula: str, slack: int, requests: int, longest: int = 1024) -> bool:
    """The run that needs `slack` tokens goes beyond the limit with a token less, not with them."""
    setting = Setting(formula, requests, max_model_len=longest)
    found = needed(setting)
    assert found is not None
    assert found.tokens == slack
    scenario = to_scenario(replace(setting, limit=found.limit), list(found.arrivals), "sound")
    less, just = (
        bool(replay(ModelTarget(f"{formula}+{tokens}"), scenario, LIMIT_RULE).broken)
        for tokens in (slack - 1, slack)
    )
    return less and not just


@pytest.mark.parametrize(
    ("formula", "tokens", "requests"), [("2.1.0", 64, 2), ("2.0.1", 126, 3), ("1.10.0", 126, 3)]
)
def test_what_the_lemmas_need_a_run_needs_too(formula, tokens, requests):
    assert enough(formula, 512) == tokens
    assert breaks(formula, tokens, requests)


def test_by_a_reading_of_the_document_no_slack_short_of_the_models_length_is_enough():
    assert enough("document_max_tkv", 512) is None
    assert breaks("document_max_tkv", 32_765, 2, 32_768)


@pytest.mark.parametrize("formula", ["2.1.2", "common_base"])
def test_a_sound_formula_needs_none(formula):
    assert enough(formula, 512) == 0
    assert needed(Setting(formula, 2)) is None
