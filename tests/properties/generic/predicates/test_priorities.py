"""Requests by priority: who starts first, and who is preempted."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.generic.predicates import PREDICATES
from schedproof.properties.history.run_history import RunHistory


def run(**keys):
    """Two requests run, of which `b` is more important; so is `d` of those that wait."""
    values = {"block_size": 4, "order": "any", "order_by_priority": True, **keys}
    history = RunHistory(full_config("generic", "documented", values), "documented", "generic")
    for name, priority in {"a": 1, "b": 0, "c": 1, "d": 0}.items():
        prompt = ((name, 5),)
        history.accept(Request(id=name, arrival=0, prompt=prompt, max_tokens=4, priority=priority))
    history.observe(Step(kind="prefill", scheduled={"a": 5, "b": 5}, emitted={}, finished={}))
    return history


def judged(rule, history, scheduled, preempted=()):
    step = Step(kind="mixed", scheduled=dict.fromkeys(scheduled, 1), preempted=tuple(preempted))
    return PREDICATES[rule].broken(history, step), PREDICATES[rule].exercised(history, step)


def test_no_request_starts_before_a_more_important_one():
    assert judged("GEN-R21", run(), "abd") == (None, True)
    assert judged("GEN-R21", run(), "cd") == (None, False)
    message = "c with priority 1 starts, but d with priority 0 has not started"
    assert judged("GEN-R21", run(), "abc") == (message, True)
    assert judged("GEN-R21", run(order_by_priority=False), "abc") == (None, False)


def test_no_request_is_preempted_for_a_less_important_one():
    assert judged("GEN-R22", run(), "b", preempted="a") == (None, True)
    message = "b with priority 0 is preempted, but a with priority 1 is computed"
    assert judged("GEN-R22", run(), "a", preempted="b") == (message, True)
    assert judged("GEN-R22", run(order_by_priority=False), "a", preempted="b") == (None, False)


def test_the_order_of_arrival_is_no_order_of_priority():
    with pytest.raises(InputError, match=r"order_by_priority: true with order fcfs"):
        full_config("generic", "documented", {"order_by_priority": True})
