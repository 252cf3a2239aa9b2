"""A connector beside any scheduler: who may be passed, what a loaded request starts with."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.generic.predicates import PREDICATES
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.registry import observable
from schedproof.spec.catalogue import load


def config(**keys):
    return full_config("generic", "documented", {"block_size": 4, "kv_connector": True, **keys})


def history(*steps, **keys):
    """`a`, of which a connector has all tokens but the last, and `b`, after these steps."""
    run = RunHistory(config(), "documented", "generic")
    loaded = {"external_tokens": 8, "load_steps": 1, **keys}
    run.accept(Request(id="a", arrival=0, prompt=(("a", 9),), max_tokens=4, **loaded))
    run.accept(Request(id="b", arrival=0, prompt=(("b", 5),), max_tokens=4))
    for fields in steps:
        run.observe(step(**fields))
    return run


def step(scheduled=(), **shown):
    fields = {"emitted": {}, "finished": {}, "preempted": (), "parked": (), **shown}
    kind = "prefill" if scheduled else "idle"
    return Step(kind=kind, scheduled=dict(scheduled), **fields)


def broken(rule, run, **fields):
    return PREDICATES[rule].broken(run, step(**fields)) is not None


PARKED = {"parked": ("a",), "computed": {"a": 8}, "blocks": {"a": (1, 2)}}


def test_a_request_may_start_before_one_that_is_loading_or_has_no_answer():
    assert broken("GEN-R04", history(external_tokens=0), scheduled={"b": 5})
    assert not broken("GEN-R04", history(), scheduled={"b": 5}, parked=("a",))
    assert not broken("GEN-R04", history(PARKED), scheduled={"b": 5})
    assert not broken("GEN-R04", history(load_deferrals=1), scheduled={"b": 5})
    assert broken("GEN-R04", history(), scheduled={"b": 5})


def test_a_load_that_lands_in_its_own_step_may_be_unseen():
    assert not broken("GEN-R04", history(load_steps=0), scheduled={"b": 5})


def test_blocks_of_a_load_may_be_given_back_as_soon_as_it_has_landed():
    for steps, breaks in ((1, False), (2, True)):
        run = history(PARKED, load_steps=steps)
        assert broken("GEN-R16", run, blocks={}) is breaks
        assert broken("GEN-R16", run, **PARKED | {"scheduled": {"a": 1}})


@pytest.mark.parametrize(
    ("fails", "tokens", "breaks"),
    [(None, 1, False), (None, 9, False), (5, 5, False), (5, 4, True), (5, 9, False), (0, 8, True)],
)
def test_a_request_starts_with_no_more_than_was_loaded(fails, tokens, breaks):
    run = history(PARKED, PARKED, load_fails_at=fails)
    shown = {"scheduled": {"a": tokens}, "computed": {"a": 9}}
    assert broken("GEN-R19", run, **shown) is breaks
    assert PREDICATES["GEN-R19"].exercised(run, step(**shown))
    assert not broken("GEN-R09", run, **shown)


def test_blocks_that_are_to_be_sent_stay_from_the_last_step_on():
    ends = {"scheduled": {"a": 1}, "finished": {"a": "eos"}}
    run = history(PARKED, PARKED, send_steps=2)
    assert broken("GEN-R18", run, **ends, blocks={})
    assert not broken("GEN-R18", run, **ends, blocks={"a": (1, 2, 3)})
    assert not broken("GEN-R18", history(PARKED, PARKED), **ends, blocks={})


def test_a_request_that_ends_at_once_shows_what_it_used_of_its_load():
    run = history(PARKED, PARKED, load_fails_at=5)
    for tokens in (5, 9):
        ends = step(scheduled={"a": tokens}, finished={"a": "length"})
        assert run.hit_now(ends, run.requests["a"]) == 9 - tokens


def test_a_parked_request_starts_with_the_tokens_that_its_next_step_shows():
    assert not broken("GEN-R09", history(), **PARKED)
    run = history(PARKED, PARKED, {"scheduled": {"a": 1}, "computed": {"a": 9}})
    assert run.requests["a"].computed == 9
    assert broken("GEN-R09", run, scheduled={"a": 1}, computed={"a": 9})


def test_a_preemption_may_leave_the_blocks_to_a_load():
    run = history({"scheduled": {"b": 5}, "emitted": {"b": 1}, **PARKED})
    assert not broken("GEN-R13", run, preempted=("b",), parked=("a",))
    alone = history({"scheduled": {"b": 5}, "emitted": {"b": 1}})
    assert broken("GEN-R13", alone, preempted=("b",))


def test_if_parked_requests_are_not_shown_no_rule_of_the_protocol_is_judged():
    fields = frozenset({"emitted", "finished", "computed", "preempted", "waiting", "running"})
    rules = load("generic")
    seen = observable(rules, "documented", fields, config(), "generic")
    assert {rule.id for rule in seen} == {
        *("ALL-R01", "ALL-R02", "ALL-R03", "ALL-R04", "ALL-R05", "ALL-R12"),
    }
    parked = observable(rules, "documented", fields | {"parked"}, config(), "generic")
    assert {"GEN-R04", "GEN-R08", "GEN-R09", "GEN-R19"} <= {rule.id for rule in parked}
