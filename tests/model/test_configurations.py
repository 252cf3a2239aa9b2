"""Configurations of every system: defaults, least values, and the keys that may be null."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.systems import full_config, reference
from schedproof.spec.systems import SYSTEMS

VLLM = {
    **{"block_size": 16, "num_blocks": None, "max_num_seqs": 128, "max_num_batched_tokens": 2048},
    **{"long_prefill_token_threshold": 0, "enable_chunked_prefill": True},
    **{"enable_prefix_caching": True},
}
DEFAULTS = {
    "spyre": {
        **{"block_size": 64, "chunk_size": 512, "max_num_seqs": 32, "max_model_len": 32768},
        **{"max_batch_tkv": 131072, "interleave": True, "prefix_caching": False},
        **{"num_blocks": None, "pausing": True, "long_output_priority": False},
    },
    "vllm": VLLM
    | {"max_model_len": 8192, "policy": "fcfs", "watermark": 0.0, "reserve_full_isl": True},
    "nano_vllm": {
        **{"block_size": 256, "num_blocks": 64, "max_num_seqs": 512},
        "max_num_batched_tokens": 16384,
    },
    "llmservingsim": VLLM | {"prioritize_prefill": False, "pp_size": 1, "instances": 0},
}
# Where it is not 1. With one token to a block of nano-vLLM no length leaves the remainder at which
# a block is added; zero slots of LLMServingSim are any number.
LEAST = {
    ("nano_vllm", "block_size"): 2,
    ("llmservingsim", "max_num_seqs"): 0,
    ("vllm", "long_prefill_token_threshold"): 0,
    ("llmservingsim", "long_prefill_token_threshold"): 0,
    ("llmservingsim", "instances"): 0,
}
REVISIONS = [
    (name, revision)
    for name, system in SYSTEMS.items()
    for revision in system.revisions
    if name in DEFAULTS
]
SIZES = [
    (name, key)
    for name, values in DEFAULTS.items()
    for key, value in values.items()
    if key == "num_blocks" or type(value) is int
]


def refusal(system, **values):
    with pytest.raises(InputError) as caught:
        full_config(system, SYSTEMS[system].revisions[0], values)
    return str(caught.value)


@pytest.mark.parametrize(("system", "revision"), REVISIONS)
def test_what_is_left_out_is_at_its_default(system, revision):
    read = reference(system).read_config({}, revision)
    assert {key: getattr(read, key) for key in DEFAULTS[system]} == DEFAULTS[system]
    assert full_config(system, revision, {}) == DEFAULTS[system]


@pytest.mark.parametrize(("system", "revision"), REVISIONS)
def test_what_is_given_is_read(system, revision):
    values = {key: LEAST.get((name, key), 1) for name, key in SIZES if name == system}
    values |= {key: not on for key, on in DEFAULTS[system].items() if isinstance(on, bool)}
    if revision != "2.5.2":
        values.pop("long_output_priority", None)
    if revision == "head":
        values.pop("prioritize_prefill", None)
    if "policy" in DEFAULTS[system]:
        values |= {"policy": "priority", "watermark": 0.5}
    read = reference(system).read_config(values, revision)
    assert {key: getattr(read, key) for key in values} == values


@pytest.mark.parametrize(("system", "key"), SIZES)
def test_a_size_has_a_least_value_and_a_type(system, key):
    least = LEAST.get((system, key), 1)
    assert refusal(system, **{key: least - 1}).startswith(
        f"$.config.{key}: {least - 1}: Expected `int` >= {least}"
    )
    kinds = {"'4'": "str", "4.5": "float", "True": "bool", "[4]": "array"}
    for value, kind in zip(("4", 4.5, True, [4]), kinds.items(), strict=True):
        assert refusal(system, **{key: value}).startswith(
            f"$.config.{key}: {kind[0]}: Expected `int"
        )
        assert f"got `{kind[1]}`" in refusal(system, **{key: value})


@pytest.mark.parametrize(("system", "key"), SIZES)
def test_only_a_pool_may_be_unbounded(system, key):
    if key == "num_blocks" and system != "nano_vllm":
        assert full_config(system, SYSTEMS[system].revisions[0], {key: None})[key] is None
    else:
        assert refusal(system, **{key: None}) == f"$.config.{key}: None: Expected `int`, got `null`"
