"""A witness in the place of a failure."""

from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.witness_search import EXERCISED, witness_predicates
from schedproof.spec.catalogue import load, select

ONE = Scenario(
    system="spyre",
    requests=(Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=2),),
)


def test_the_rule_breaks_where_it_is_exercised_and_nowhere_else() -> None:
    rules = select(load("spyre"), ["ALL-R04"])
    wanted = witness_predicates("spyre", "ALL-R04")
    [broken] = replay(ModelTarget(), ONE, rules, predicates=wanted).broken
    assert (broken.rule, broken.message) == ("ALL-R04", EXERCISED)
    assert replay(ModelTarget(), ONE, rules).broken == []


def test_a_rule_that_is_not_exercised_does_not_break() -> None:
    wanted = witness_predicates("spyre", "SPY-R09")
    rules = select(load("spyre"), ["SPY-R09"])
    assert replay(ModelTarget(), ONE, rules, predicates=wanted).broken == []
