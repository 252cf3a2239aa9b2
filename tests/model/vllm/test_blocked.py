"""Requests that wait for their grammar: nobody waits for them, and they keep their place."""

import pytest

from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.blocked import goes_on
from schedproof.model.vllm.config import read_config
from schedproof.model.vllm.queue import Plan
from schedproof.model.vllm.state import Sequence, State

CONFIG = {
    **{"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32},
    **{"num_blocks": 12, "structured_outputs": True},
}


def started(revision="0.33", **changes):
    target = ModelTarget()
    assert target.start("vllm", revision, CONFIG | changes)["ok"]
    return target


def add(target, name, steps=0, max_tokens=4, **changes):
    request = {"id": name, "prompt": [[name, 6]], "max_tokens": max_tokens, "grammar_steps": steps}
    assert target.add(request | changes)["ok"]


def step(target):
    return target.step()["step"]


def test_a_request_runs_in_the_first_step_in_which_its_grammar_is_compiled():
    target = started()
    add(target, "a", 2)
    assert [step(target)["scheduled"] for _ in range(3)] == [{}, {}, {"a": 6}]


def test_a_request_that_waits_for_its_grammar_holds_up_no_other():
    target = started()
    add(target, "a", 2)
    add(target, "b")
    seen = step(target)
    assert (seen["scheduled"], seen["waiting"]) == ({"b": 6}, ["a"])


@pytest.mark.parametrize(
    ("revision", "waiting", "admitted"),
    [("0.33", ["b", "c"], "b"), ("0.30", ["c", "b"], "c"), ("documented", ["c", "b"], "c")],
)
def test_since_0_31_a_request_keeps_its_place_while_it_waits_for_its_grammar(
    revision, waiting, admitted
):
    target = started(revision, max_num_seqs=1)
    add(target, "a", max_tokens=2)
    add(target, "b")
    add(target, "c", 1)
    assert [step(target)["waiting"] for _ in range(2)] == [waiting] * 2
    assert step(target)["running"] == [admitted]


@pytest.mark.parametrize(("revision", "waiting"), [("0.33", ["b", "c"]), ("0.30", ["c", "b"])])
def test_a_preempted_request_goes_ahead_of_a_blocked_one_since_0_31(revision, waiting):
    target = started(revision, num_blocks=4, max_model_len=16)
    add(target, "a", prompt=[["a", 7]], max_tokens=8)
    add(target, "b", prompt=[["b", 7]], max_tokens=8)
    step(target)
    add(target, "c", 9)
    seen = [step(target) for _ in range(2)][-1]
    assert (seen["preempted"], seen["waiting"]) == (["b"], waiting)


def test_by_priority_a_blocked_request_has_the_place_that_its_priority_gives_it():
    target = started(policy="priority", max_num_seqs=1)
    add(target, "a", priority=1)
    add(target, "b", 1, priority=0)
    add(target, "c", 1, priority=2)
    assert step(target)["waiting"] == ["b", "c"]


def test_a_blocked_request_that_is_aborted_is_gone():
    target = started()
    add(target, "a", 5)
    step(target)
    target.abort("a")
    seen = step(target)
    assert (seen["finished"], seen["waiting"], seen["free_blocks"]) == ({"a": "aborted"}, [], 12)


def test_grammars_are_compiled_while_the_scheduler_is_paused():
    target = started()
    add(target, "a", 2)
    target.control("pause_all")
    assert [step(target)["scheduled"] for _ in range(2)] == [{}, {}]
    target.control("resume")
    assert step(target)["scheduled"] == {"a": 6}


def test_a_request_with_an_invalid_grammar_ends_once_it_is_compiled():
    target = started()
    add(target, "a", 1, grammar_fails=True)
    add(target, "b")
    assert [step(target)["finished"] for _ in range(2)] == [{}, {"a": "error"}]
    assert step(target)["waiting"] == []


def test_an_invalid_grammar_is_noticed_only_when_admission_comes_to_it():
    target = started(max_num_seqs=1)
    add(target, "a", max_tokens=2)
    add(target, "b", grammar_fails=True)
    assert [step(target)["finished"] for _ in range(3)] == [{}, {"a": "length"}, {"b": "error"}]


def test_with_steps_in_flight_an_invalid_grammar_is_reported_with_the_next_completion():
    target = started(async_scheduling=True)
    add(target, "a")
    add(target, "b", grammar_fails=True)
    assert [step(target)["finished"] for _ in range(2)] == [{}, {"b": "error"}]


def test_what_is_not_modelled_with_grammars_is_refused():
    reply = ModelTarget().start("vllm", "0.33", CONFIG | {"kv_connector": True})
    assert reply["error"] == "config"
    assert reply["message"].startswith("$.config.structured_outputs: true with ")


def test_a_preempted_request_that_is_still_computed_does_not_end_admission():
    config = read_config(full_config("vllm", "0.33", CONFIG), "0.33")
    state = State(waiting=(Sequence("a", 6, 4, 4, (("a", 6),)),), in_flight=({"a": None},))
    assert goes_on(config, Plan.of(config, state))
    assert not goes_on(config, Plan.of(config, state._replace(in_flight=())))
