"""A run without a feature never enters its file; one with it does."""

import inspect
from types import ModuleType
from typing import Any

import pytest

from schedproof.model.target import ModelTarget
from schedproof.model.vllm import connector, encoder, in_flight, speculation

SMALL = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 8, "max_model_len": 32},
    **{"num_blocks": 6, "reserve_full_isl": False},
}
# By file, the configuration that switches the feature on, and what a request then has of it.
FEATURES: dict[ModuleType, tuple[dict[str, Any], dict[str, Any]]] = {
    in_flight: ({"async_scheduling": True}, {}),
    speculation: ({"num_speculative_tokens": 2}, {"accepted": [1]}),
    connector: ({"kv_connector": True}, {"external_tokens": 4, "load_steps": 1}),
    encoder: (
        {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8},
        {"encoder_inputs": [0]},
    ),
}
# What a decision in flight writes, no load may fill: the connector has to look at both.
ALSO = {connector: (in_flight,)}


def run(config, more):
    """Three requests for a pool that has room for two, with aborts before and inside a step."""
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **config})["ok"]
    steps = []
    for name in "abcde":
        values = {"id": name, "prompt": [[name, 7]], "max_tokens": 9, **more}
        assert target.add(values)["ok"]
    for number in range(60):
        if number == 6:
            target.abort("e")
        if number == 9:
            target.abort("b", inside=True)
        steps.append(target.step()["step"])
    return steps


def entered(monkeypatch, module):
    """The functions of a module that are called from now on."""
    calls: list[str] = []
    for name, function in vars(module).copy().items():
        if inspect.isfunction(function) and function.__module__ == module.__name__:

            def noted(*args, name=name, function=function):
                calls.append(name)
                return function(*args)

            monkeypatch.setattr(module, name, noted)
    return calls


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_without_features_no_file_of_one_is_entered(policy, monkeypatch):
    calls = [entered(monkeypatch, module) for module in FEATURES]
    steps = run({"policy": policy}, {})
    assert any(step["preempted"] for step in steps)
    assert {why for step in steps for why in step["finished"].values()} == {"aborted", "length"}
    assert calls == [[], [], [], []]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda module: module.__name__.split(".")[-1])
def test_a_feature_enters_its_own_file_only(feature, monkeypatch):
    calls = {module: entered(monkeypatch, module) for module in FEATURES}
    run(*FEATURES[feature])
    used = {module for module in FEATURES if calls[module]}
    assert used - {*ALSO.get(feature, ())} == {feature}
