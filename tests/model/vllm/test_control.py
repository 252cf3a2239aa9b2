"""Control events: the cache is reset, and the scheduler paused, between two steps."""

import pytest

from schedproof.model.scenario import CONTROLS
from schedproof.model.target import ModelTarget

from .pauses import RUNS, scheduled

CONFIG = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 32},
    "num_blocks": 12,
}


def started(revision="0.33", **changes):
    target = ModelTarget()
    assert target.start("vllm", revision, CONFIG | changes)["ok"]
    return target


def add(target, name, prompt=6, max_tokens=4, stream=None):
    request = {"id": name, "prompt": [[stream or name, prompt]], "max_tokens": max_tokens}
    assert target.add(request)["ok"]


def step(target):
    return target.step()["step"]


def steps(target, number):
    return [step(target) for _ in range(number)][-1]


def test_only_declared_events_are_taken():
    declared = started().start("vllm", "0.33", CONFIG)["controls"]
    assert declared == [*CONTROLS]
    target = ModelTarget()
    reply = target.start("vllm", "0.33", {**CONFIG, "kv_connector": True})
    assert "controls" not in reply
    assert target.control("resume")["error"] == "unsupported"
    assert "controls" not in target.start("spyre", "sound", {})


def test_a_reset_is_refused_while_a_request_holds_a_block():
    target = started()
    add(target, "a")
    step(target)
    assert target.control("reset_prefix_cache") == {"ok": True, "done": False}
    assert step(target)["scheduled"] == {"a": 1}


@pytest.mark.parametrize(("kind", "hit"), [("reset_prefix_cache", 0), ("resume", 4)])
def test_after_a_reset_nothing_is_found(kind, hit):
    target = started()
    add(target, "a", max_tokens=1)
    step(target)
    assert target.control(kind)["done"]
    add(target, "b", stream="a")
    assert step(target)["prefix_hit"] == {"b": hit}


def test_a_reset_of_running_requests_keeps_their_order_and_every_block():
    target = started(max_num_seqs=2)
    for name in "abc":
        add(target, name)
    assert step(target)["waiting"] == ["c"]
    assert target.control("reset_running_requests")["done"]
    seen = step(target)
    assert (seen["running"], seen["waiting"]) == (["a", "b"], ["c"])
    assert (seen["scheduled"], seen["preempted"]) == ({"a": 7, "b": 7}, [])
    assert seen["free_blocks"] == 12 - 4


def test_an_engine_that_slept_has_lost_every_key_and_value():
    target = started(max_num_seqs=2)
    for name in "abc":
        add(target, name, prompt=9)
    step(target)
    assert target.control("sleep") == {"ok": True, "done": True}
    seen = steps(target, 2)
    assert (seen["kind"], seen["waiting"], seen["free_blocks"]) == ("idle", ["a", "b", "c"], 12)
    assert target.control("wake_up") == {"ok": True, "done": True}
    seen = step(target)
    assert seen["scheduled"] == {"a": 10, "b": 6}
    assert seen["prefix_hit"] == {"a": 0, "b": 0}


def test_an_engine_with_an_encoder_does_not_sleep():
    target = ModelTarget()
    encoder = {"max_num_encoder_input_tokens": 16, "encoder_cache_size": 16}
    declared = target.start("vllm", "0.33", CONFIG | encoder)["controls"]
    assert declared == [kind for kind in CONTROLS if kind not in ("sleep", "wake_up")]


def test_a_reset_drops_tokens_in_flight_and_none_comes_twice():
    target = started(async_scheduling=True)
    add(target, "a", max_tokens=2)
    step(target)
    assert target.control("reset_running_requests")["done"]
    seen = [step(target) for _ in range(5)]
    places = [item["emitted_at"]["a"] for item in seen if item["emitted_at"]]
    assert places == [0, 1]
    assert {"a": "length"} in [item["finished"] for item in seen]


def test_all_paused_schedules_nothing_until_it_is_resumed():
    target = started()
    add(target, "a")
    step(target)
    target.control("pause_all")
    add(target, "b")
    assert steps(target, 3)["kind"] == "idle"
    target.control("resume")
    assert step(target)["scheduled"] == {"a": 1, "b": 6}


def test_new_requests_paused_lets_running_ones_go_on():
    target = started()
    add(target, "a")
    step(target)
    target.control("pause_new")
    add(target, "b")
    seen = step(target)
    assert (seen["scheduled"], seen["waiting"]) == ({"a": 1}, ["b"])


def test_what_is_preempted_while_new_requests_are_paused_waits_for_resume():
    target = started(num_blocks=4, max_model_len=16)
    add(target, "a", 7, 8)
    add(target, "b", 7, 8)
    step(target)
    target.control("pause_new")
    seen = steps(target, 2)
    assert seen["preempted"] == ["b"]
    assert steps(target, 8)["waiting"] == ["b"]
    target.control("resume")
    assert "b" in step(target)["scheduled"]


@pytest.mark.parametrize(("stages", "prompts", "changes", "expected"), RUNS)
def test_a_step_without_a_decision_does_not_count_as_rest(stages, prompts, changes, expected):
    steps = len(expected.split())
    assert scheduled(ModelTarget(), "0.33", stages, prompts, changes, steps) == expected
