"""A witness in the place of a failure."""

import pytest

from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.replay import replay
from schedproof.properties.rules import PREDICATES
from schedproof.properties.wanted import AT_STAKE, witness_wanted
from schedproof.spec.catalogue import load, select

ONE = Scenario(
    system="spyre",
    requests=(Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=2),),
)


def test_the_rule_breaks_where_it_is_at_stake_and_only_within() -> None:
    rules = select(load("spyre"), ["ALL-R04"])
    before = dict(PREDICATES["spyre"])
    with witness_wanted("spyre", "ALL-R04"):
        [broken] = replay(ModelTarget(), ONE, rules).broken
    assert (broken.rule, broken.message) == ("ALL-R04", AT_STAKE)
    assert PREDICATES["spyre"] == before
    assert replay(ModelTarget(), ONE, rules).broken == []


def test_a_rule_that_is_not_at_stake_does_not_break() -> None:
    with witness_wanted("spyre", "SPY-R09"):
        outcome = replay(ModelTarget(), ONE, select(load("spyre"), ["SPY-R09"]))
    assert outcome.broken == []


def test_the_predicate_comes_back_after_an_error() -> None:
    before = dict(PREDICATES["spyre"])
    with pytest.raises(KeyboardInterrupt), witness_wanted("spyre", "SPY-R07"):
        raise KeyboardInterrupt
    assert PREDICATES["spyre"] == before
