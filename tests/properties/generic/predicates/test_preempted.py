"""Preempted requests: no request starts while a preempted one that goes before it waits."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.generic.predicates import PREDICATES
from schedproof.properties.history.run_history import RunHistory

BY_PRIORITY = {"order": "any", "order_by_priority": True}


def run(preempted="b", **keys):
    """`a` runs, `b` was preempted, `early` arrived before that, and `c` after it."""
    values = {"block_size": 4, "num_blocks": 8, **keys}
    history = RunHistory(full_config("generic", "documented", values), "documented", "generic")
    for name, priority in {"a": 0, "b": 1, "early": 2}.items():
        history.accept(request(name, priority))
    history.observe(decided({"a": 5, "b": 5}, emitted={"a": 1, "b": 1}))
    history.observe(decided({"a": 1}, preempted, emitted={"a": 1}))
    history.accept(request("c", 2))
    return history


def request(name, priority):
    return Request(id=name, arrival=0, prompt=((name, 5),), max_tokens=4, priority=priority)


def decided(scheduled, preempted="", emitted=None):
    return Step(
        kind="mixed",
        scheduled=scheduled,
        preempted=tuple(preempted),
        emitted=emitted or {},
        finished={},
    )


def judged(rule, history, scheduled, preempted=""):
    step = decided(dict.fromkeys(scheduled, 1), preempted)
    return PREDICATES[rule].broken(history, step), PREDICATES[rule].exercised(history, step)


def test_no_less_important_request_starts_before_a_preempted_one():
    message = "c with priority 2 starts, but b with priority 1 was preempted and still waits"
    assert judged("GEN-R41", run(**BY_PRIORITY), ["c"]) == (message, True)
    assert judged("GEN-R41", run(**BY_PRIORITY), ["early"])[0] is not None
    assert judged("GEN-R41", run(**BY_PRIORITY), ["b", "c"]) == (None, True)
    assert judged("GEN-R41", run(**BY_PRIORITY), ["a"]) == (None, False)
    assert judged("GEN-R41", run(), ["c"]) == (None, False)


def test_first_come_first_served_no_later_request_starts_before_a_preempted_one():
    message = "c starts, but b was preempted before c arrived, and still waits"
    assert judged("GEN-R42", run(), ["c"]) == (message, True)
    assert judged("GEN-R42", run(), ["b"]) == (None, True)
    assert judged("GEN-R42", run(order="any"), ["c"]) == (None, False)
    # A scheduler may put preempted requests behind those that wait.
    assert judged("GEN-R42", run(), ["early"]) == (None, False)


@pytest.mark.parametrize("rule", ["GEN-R41", "GEN-R42"])
@pytest.mark.parametrize(
    ("keys", "abort"),
    [({"preempted": ""}, False), ({"kv_connector": True}, False), ({}, True)],
)
def test_another_may_start_if_none_was_preempted_or_may_go_on(rule, keys, abort):
    history = run(**(BY_PRIORITY if rule == "GEN-R41" else {}), **keys)
    if abort:
        history.abort("b", inside=True)
    assert judged(rule, history, ["a", "c"])[0] is None
