"""A configuration of one system in the terms of another."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.systems import full_config
from schedproof.properties.checking.translation import (
    LONG,
    fixed_for,
    optional_in_effect,
    translated,
)

VLLM, SIM = ("vllm", "documented"), ("llmservingsim", "head")
NANO, SPYRE = ("nano_vllm", "0.2.0"), ("spyre", "sound")


def config(system, revision, **values):
    return full_config(system, revision, values)


def test_what_both_have_is_passed_on_and_the_rest_is_without_effect():
    given = config(*VLLM, block_size=4, num_blocks=9, enable_prefix_caching=False)
    config_of_other = translated(given, *VLLM, *SIM)
    assert (config_of_other["block_size"], config_of_other["num_blocks"]) == (4, 9)
    assert config_of_other["enable_prefix_caching"] is False
    assert (config_of_other["prioritize_prefill"], config_of_other["pp_size"]) == (False, 1)
    assert "max_model_len" not in config_of_other


def test_the_other_way_round_no_length_is_in_the_way():
    config_of_other = translated(config(*SIM, max_num_seqs=4), *SIM, *VLLM)
    assert config_of_other == config(*VLLM, max_num_seqs=4, max_model_len=LONG)


def test_nano_vllm_always_caches_and_cuts_prompts():
    config_of_other = translated(config(*NANO), *NANO, *VLLM)
    assert config_of_other["enable_prefix_caching"]
    assert config_of_other["enable_chunked_prefill"]


@pytest.mark.parametrize(
    ("key", "value"), [("policy", "priority"), ("watermark", 0.1), ("reserve_full_isl", False)]
)
def test_a_key_that_has_an_effect_which_the_other_lacks_is_an_error(key, value):
    with pytest.raises(InputError, match=rf"\$\.config\.{key}: .* means nothing to llmservingsim"):
        translated(config(*VLLM, **{key: value}), *VLLM, *SIM)


def test_what_must_be_fixed_is_what_the_other_lacks():
    assert fixed_for(*VLLM, *SIM) == {
        "async_scheduling": False,
        "num_lookahead_tokens": 0,
        "num_speculative_tokens": 0,
        "num_speculative_tokens_per_batch_size": None,
        "pipeline_parallel_size": 1,
        "early_completions": 0,
        "kv_connector": False,
        "kv_load_failure_policy": "recompute",
        "max_num_encoder_input_tokens": 0,
        "encoder_cache_size": 0,
        "kv_groups": [{"kind": "full"}],
        "prefix_cache_retention_interval": None,
        "cache_partitions": False,
        "max_loras": None,
        "mamba_cache_mode": "none",
        "prefix_match_unit": None,
        "kv_cache_events": "none",
        "use_v2_model_runner": False,
        "structured_outputs": False,
        "reused_ids": False,
        "streaming_inputs": False,
        "max_num_active_seqs": None,
        "long_prefill_token_threshold_adaptive": False,
        "disable_chunked_mm_input": False,
        "prefill_schedule_interval": 1,
        "synchronous_loads": False,
        "policy": "fcfs",
        "reserve_full_isl": True,
        "watermark": 0.0,
    }
    assert fixed_for(*SIM, *VLLM) == {
        "pp_size": 1,
        "prioritize_prefill": False,
        "instances": 0,
    }


@pytest.mark.parametrize("pair", [(SPYRE, VLLM), (VLLM, SPYRE), (NANO, SPYRE)])
def test_spyre_has_no_configuration_in_common_with_the_others(pair):
    with pytest.raises(InputError, match="have no configuration in common"):
        fixed_for(*pair[0], *pair[1])


def test_a_key_that_is_fixed_at_what_it_is_without_a_word_says_nothing():
    assert (
        optional_in_effect(*VLLM, {"kv_connector": False, "num_speculative_tokens": 0})
        == frozenset()
    )
    assert optional_in_effect(*VLLM, {"kv_connector": True, "policy": "priority"}) == {
        "kv_connector"
    }
    assert optional_in_effect(*NANO, {"max_num_seqs": 2}) == frozenset()
