"""Slots for LoRA adapters: who waits for one, and who goes ahead in the meantime."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

SLOT = {"cache_partitions": True, "max_loras": 1}
SMALL = {"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 32}


def started(*adapters, revision="0.33", **changes):
    """Return the numbers of the requests that start, step by step, until all have started."""
    target, seen = ModelTarget(), []
    assert target.start("vllm", revision, {**SMALL, **SLOT, **changes})["ok"]
    for number, adapter in enumerate(adapters):
        request = {"id": str(number), "prompt": [[str(number), 4]], "max_tokens": 2}
        assert target.add(request | ({"lora": adapter} if adapter else {}))["ok"]
    while sum(map(len, seen)) < len(adapters):
        step = target.step()["step"]
        seen.append([name for name, tokens in step["scheduled"].items() if tokens == 4])
    return [step for step in seen if step]


def test_a_request_waits_for_a_slot_and_holds_up_no_other():
    assert started("x", "y", None, "x") == [["0", "2", "3"], ["1"]]


def test_an_adapter_that_is_in_use_needs_no_slot():
    assert started("x", "y", "x", "y", max_loras=2) == [["0", "1", "2", "3"]]


def test_without_a_limit_every_adapter_has_a_slot():
    assert started("x", "y", "z", max_loras=None) == [["0", "1", "2"]]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"cache_partitions": False}, "1 with cache_partitions false is not modelled"),
        ({"kv_connector": True}, "1 with a kv_connector is not modelled"),
        ({"structured_outputs": True}, "1 with structured_outputs is not modelled"),
        ({"async_scheduling": True}, "1 with several decisions in flight is not modelled"),
    ],
)
def test_a_limit_on_adapters_is_refused_with_other_features(more, problem):
    with pytest.raises(InputError, match=problem):
        read_config({**SLOT, **more}, "0.33")
