"""Partitions: equal tokens with another salt or adapter are other blocks."""

import pytest

from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import model
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

CONFIG = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32}
RULES = [rule for rule in load("vllm", "0.33") if rule.checked]
X, Y = {"cache_salt": "x"}, {"cache_salt": "y"}


def scenario(first, second):
    config = full_config("vllm", "0.33", {**CONFIG, "cache_partitions": True})
    requests = tuple(
        Request(id=name, arrival=2 * number, prompt=(("p", 9),), max_tokens=1, **changes)
        for number, (name, changes) in enumerate((("a", first), ("b", second)))
    )
    return Scenario(system="vllm", revision="0.33", config=config, requests=requests)


@pytest.mark.parametrize(
    ("first", "second", "computed"),
    [({}, {}, 1), (X, X, 1), (X, Y, 9), (X, {}, 9), ({}, X, 9), (X, {"lora": "x"}, 9)],
)
def test_a_request_finds_blocks_of_its_own_partition_only(first, second, computed):
    seen = []
    outcome = replay(
        ModelTarget(), scenario(first, second), RULES, watch=lambda _, step: seen.append(step)
    )
    assert outcome.broken == []
    assert seen[2].scheduled == {"b": computed}
    assert outcome.exercised["V1-R40"] == (computed == 9)


def test_a_hit_across_partitions_is_named_by_its_own_rule(monkeypatch):
    monkeypatch.setattr(model, "partition_content", lambda request: request.prompt)
    [first, *_] = replay(ModelTarget(), scenario(X, {"lora": "x"}), RULES).broken
    assert first.rule == "V1-R40"
    assert first.message == (
        "b takes 8 tokens from the cache, but only 0 were computed with its adapter (x) and its "
        "salt (none)"
    )
