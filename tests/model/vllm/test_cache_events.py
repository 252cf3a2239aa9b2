"""Events about the prefix cache: what the model publishes in each step."""

import pytest

from schedproof.model.target import ModelTarget

KEYS = {
    **{"max_num_seqs": 2, "max_num_batched_tokens": 8, "block_size": 4, "max_model_len": 16},
    **{"kv_cache_events": "incremental"},
}


def target(**keys):
    model = ModelTarget()
    assert model.start("vllm", "0.33", {**KEYS, **keys})["ok"]
    return model


def ask(model, name, *prompt, tokens=1):
    segments = [list(segment) for segment in prompt]
    assert model.add({"id": name, "prompt": segments, "max_tokens": tokens})["ok"]


def changes(model):
    return model.step()["step"]["cache_events"]


def stored(*names):
    return [{"kind": "stored", "blocks": [name], "tokens": 4, "block_size": 4} for name in names]


def test_a_step_says_which_blocks_can_be_found_from_now_on():
    model = target()
    ask(model, "a", ("a", 8))
    assert changes(model) == {"events": stored("a 4", "a 8"), "entered": ["a 4", "a 8"], "left": []}
    assert changes(model) == {"events": []}


def test_a_block_that_is_handed_out_again_is_removed():
    model = target(num_blocks=2, max_model_len=8)
    ask(model, "a", ("a", 7))
    assert changes(model)["entered"] == ["a 4"]
    ask(model, "b", ("b", 7))
    evicted = changes(model)
    assert evicted["events"] == [{"kind": "removed", "blocks": ["a 4"]}, *stored("b 4")]
    assert (evicted["entered"], evicted["left"]) == (["b 4"], ["a 4"])


def test_a_block_whose_copy_remains_is_not_removed():
    model = target(num_blocks=4)
    ask(model, "a", ("a", 8))
    model.step()
    ask(model, "b", ("a", 8))  # computes its last block again
    model.step()
    ask(model, "c", ("c", 5))
    assert changes(model)["left"] == []


def test_a_reset_removes_every_block():
    model = target()
    ask(model, "a", ("a", 8))
    model.step()
    assert model.control("reset_prefix_cache")["done"]
    assert changes(model)["left"] == ["a 4", "a 8"]


@pytest.mark.parametrize("keys", [{"async_scheduling": True}, {"pipeline_parallel_size": 3}])
def test_events_wait_for_a_decision_to_complete(keys):
    model = target(**keys)
    ask(model, "a", ("a", 8))
    assert changes(model) == {}
    assert changes(model)["entered"] == ["a 4", "a 8"]


def test_a_block_has_the_size_of_its_group():
    window = {"kind": "sliding_window", "window": 5, "block_size": 2}
    model = target(kv_groups=[{"kind": "full"}, window])
    ask(model, "a", ("a", 4))
    sizes = {event["blocks"][0]: event["block_size"] for event in changes(model)["events"]}
    assert sizes == {"a 4": 4, "group 0 0/a 2": 2, "group 0 0/a 4": 2}


def test_without_the_key_nothing_is_shown():
    model = target(kv_cache_events="none")
    ask(model, "a", ("a", 8))
    assert "cache_events" not in model.step()["step"]
