"""The judge of one run: which rules a step breaks, in which order, and what was exercised."""

from typing import Any

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.checking.monitor import Monitor
from schedproof.properties.rules.predicate import Broken, Predicate
from schedproof.spec.catalogue import Rule, load, select

RULES = load("spyre")
CONFIG = full_config("spyre", "sound", {"block_size": 4, "chunk_size": 8})
OF: dict[str, Any] = {"revision": "sound", "system": "spyre"}
IDLE = Step(kind="idle", scheduled={})


def rule(name):
    return Rule(name, name, name, "", "safety", ("*",), ())


def monitor(**predicates):
    return Monitor([rule(name) for name in predicates], predicates, CONFIG, **OF)


def breaks(message):
    return Predicate(lambda history, step: message, lambda history, step: False)


HOLDS = Predicate(lambda history, step: None, lambda history, step: True)
IDLES = Predicate(lambda history, step: None, lambda history, step: False)


def accepted(judge, name, prompt=5):
    judge.accept(Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=3))


def test_broken_rules_are_named_in_catalogue_order_with_the_step():
    judge = monitor(A=HOLDS, B=breaks("b"), C=breaks("c"))
    assert judge.observe(IDLE) == [Broken("B", 0, "b"), Broken("C", 0, "c")]
    assert judge.observe(IDLE)[0].step == 1


def test_a_rule_is_at_stake_where_its_witness_occurs_or_it_breaks():
    judge = monitor(A=HOLDS, B=breaks("b"), C=IDLES)
    judge.observe(IDLE)
    judge.observe(IDLE)
    assert [judge.exercised[name] for name in "ABC"] == [2, 2, 0]


def test_a_predicate_reads_the_history_as_it_was_before_the_step():
    seen = []

    def look(history, step):
        seen.append((history.step, history.requests["a"].computed))
        return

    judge = monitor(A=Predicate(look, lambda history, step: False))
    accepted(judge, "a")
    judge.observe(Step(kind="prefill", scheduled={"a": 5}, emitted={"a": 1}))
    judge.observe(Step(kind="decode", scheduled={"a": 1}, emitted={"a": 1}))
    assert seen == [(0, 0), (1, 5)]


@pytest.mark.parametrize(("members", "asked"), [("prefill", 1), ("decode", 1), ("any", 3)])
def test_a_rule_is_asked_only_about_steps_with_its_members(members, asked):
    judge = monitor(A=HOLDS._replace(members=members))
    accepted(judge, "a")
    judge.observe(Step(kind="prefill", scheduled={"a": 5}))
    judge.observe(Step(kind="decode", scheduled={"a": 1}))
    judge.observe(IDLE)
    assert judge.exercised["A"] == asked


def test_never_crashes_and_never_hangs_are_at_stake_only_while_someone_is_unfinished():
    judge = Monitor(select(RULES, ["ALL-R01", "ALL-R02"]), {}, CONFIG, **OF)
    judge.observe(IDLE)
    assert judge.exercised.total() == 0
    accepted(judge, "a")
    judge.observe(Step(kind="prefill", scheduled={"a": 5}, finished={"a": "eos"}))
    judge.observe(IDLE)
    assert judge.exercised == {"ALL-R01": 1, "ALL-R02": 1}


def test_a_crash_and_a_hang_are_broken_rules_of_the_coming_step():
    judge = monitor()
    judge.observe(IDLE)
    assert judge.crashed("why") == [Broken("ALL-R01", 1, "why")]
    assert judge.hung("long") == [Broken("ALL-R02", 1, "long")]


def test_lockstep_comes_last_and_only_where_the_rule_is_checked():
    differs = ["kind: target idle, model prefill", "scheduled: target [], model [('a', 5)]"]
    with_rule = Monitor([rule("A"), *select(RULES, ["ALL-R07"])], {"A": breaks("a")}, CONFIG, **OF)
    assert [one.rule for one in with_rule.observe(IDLE)] == ["A"]
    assert [one.rule for one in with_rule.observe(IDLE, [])] == ["A"]
    found = with_rule.observe(IDLE, differs)
    assert [one.rule for one in found] == ["A", "ALL-R07"]
    assert found[1].message == "; ".join(differs)
    assert monitor(A=HOLDS).observe(IDLE, differs) == []
