"""The fewest requests that exceed the limit, at production scale and at the smallest."""

import pytest

from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.spyre.fewest import fewest
from schedproof.solver.spyre.volumetric import Setting, to_scenario
from schedproof.spec.catalogue import load, select

LIMIT_RULE = select(load("spyre"), ["SPY-R07"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula",
    [
        "0.8.0",
        "1.10.0",
        "2.0.1",
        "2.1.0",
        "document_own_tkv",
        "document_realigned",
        "document_max_tkv",
    ],
)
def test_five_requests_break_an_unsound_formula_at_production_scale(formula):
    [found] = list(fewest(Setting(formula, 2), 5))
    assert (found.requests, found.answer) == (5, "sat")
    scenario = to_scenario(Setting(formula, 5), list(found.arrivals), "sound")
    outcome = replay(ModelTarget(formula), scenario, LIMIT_RULE)
    assert [one.rule for one in outcome.broken] == ["SPY-R07"]
    assert outcome.broken[0].message.startswith("5 requests x tkv")


@pytest.mark.parametrize("formula", ["2.1.2", "common_base"])
def test_two_and_three_requests_do_not_break_a_sound_formula(formula):
    setting = Setting(formula, 2, block=2, chunk=2, limit=8, max_model_len=8)
    answers = [(one.requests, one.where, one.answer) for one in fewest(setting, 3)]
    assert answers == [(2, "everywhere", "unsat"), (3, "everywhere", "unsat")]


def test_where_the_limit_cannot_be_reached_nothing_is_asked():
    assert list(fewest(Setting("2.1.0", 2, max_model_len=4096), 32)) == []


@pytest.mark.slow
def test_one_token_less_than_a_block_of_slack_is_not_enough():
    """A block more for every request makes 2.1.0 sound (test_volumetric_proof); 63 tokens do
    not."""
    setting = Setting("2.1.0+63", 2, limit=131_195)
    [found] = list(fewest(setting, 5))
    assert found.answer == "sat"
    scenario = to_scenario(setting, list(found.arrivals), "sound")
    assert replay(ModelTarget("2.1.0+63"), scenario, LIMIT_RULE).broken
