"""What a record says of a scheduler of vLLM and of its requests, without vLLM."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets.vllm.recorder import (
    NOT_IN_SCENARIOS,
    RecordEnds,
    config_of,
    request_of,
)


class FullAttentionManager:
    block_size = 16


class SlidingWindowManager(FullAttentionManager):
    pass


def scheduler(*managers, transfers=None, **options):
    usual = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "policy": "fcfs",
    }
    cache = SimpleNamespace(block_size=16, enable_prefix_caching=True)
    vllm_config = SimpleNamespace(
        kv_transfer_config=transfers,
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        cache_config=cache,
        model_config=SimpleNamespace(max_model_len=128),
    )
    kept = SimpleNamespace(
        coordinator=SimpleNamespace(single_type_managers=managers or (FullAttentionManager(),)),
        block_pool=SimpleNamespace(num_gpu_blocks=33),
    )
    return SimpleNamespace(
        vllm_config=vllm_config,
        scheduler_config=SimpleNamespace(**{**usual, **options}),
        kv_cache_manager=kept,
    )


def request(**more):
    return SimpleNamespace(request_id="a", max_tokens=3, priority=-1, **more)


def test_the_null_block_is_not_counted_and_options_that_a_release_lacks_are_off():
    config = config_of(scheduler())
    assert (config["num_blocks"], config["watermark"], config["reserve_full_isl"]) == (32, 0, False)
    assert not {"async_scheduling", "pipeline_parallel_size", "num_speculative_tokens"} & {*config}


def test_what_is_in_flight_is_said():
    assert config_of(scheduler(async_scheduling=True))["async_scheduling"] is True


def test_drafts_that_are_decided_ahead_end_the_record():
    drafting = scheduler(async_scheduling=True)
    drafting.num_spec_tokens = 2
    with pytest.raises(RecordEnds, match="which drafts are right is not known yet"):
        config_of(drafting)
    drafting.scheduler_config.async_scheduling = False
    assert config_of(drafting)["num_speculative_tokens"] == 2


def test_a_request_has_an_id_a_bound_and_a_priority():
    unset = dict.fromkeys(NOT_IN_SCENARIOS)
    assert request_of(request(**unset)) == {"id": "a", "max_tokens": 3, "priority": -1}


@pytest.mark.parametrize("attribute", NOT_IN_SCENARIOS)
def test_a_request_that_waits_for_more_than_its_turn_ends_the_record(attribute):
    with pytest.raises(RecordEnds, match=f"a {NOT_IN_SCENARIOS[attribute]}"):
        request_of(request(**{attribute: [1]}))


@pytest.mark.parametrize(
    ("managers", "said"),
    [
        ((SlidingWindowManager(),), "SlidingWindowManager"),
        ((FullAttentionManager(), SlidingWindowManager()), "SlidingWindowManager"),
        ((SimpleNamespace(block_size=32),), "SimpleNamespace"),
    ],
)
def test_blocks_that_are_kept_otherwise_end_the_record(managers, said):
    with pytest.raises(RecordEnds, match=said):
        config_of(scheduler(*managers))


def test_a_connector_ends_the_record():
    with pytest.raises(RecordEnds, match="connector"):
        config_of(scheduler(transfers=object()))
