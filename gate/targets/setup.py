"""What the gate asks of the targets of each system: scales and features."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...spec.systems import part

Config = Mapping[str, Any]

# A pool that is large enough for releases that reserve nothing, in blocks.
POOL: Config = {"num_blocks": 64}


class Configuration(NamedTuple):
    """Keys of the configuration that have one value, by a name for users."""

    name: str
    changes: Config = MappingProxyType({})


ANY = Configuration("any")


class Setup(NamedTuple):
    """How the targets of one system are asked. Lengths in tokens, pools in blocks.

    Attributes:
        scales: by scale (small, short, tight), the configuration that a target must accept.
        plain: what every scheduler can leave out.
        features: what a scheduler may have beside that, each asked for by itself.
        chunk_key: the configuration key that bounds how many prompt tokens one step computes.
        configurations: what releases are judged in one by one, by `matrix` and `campaign`.
    """

    scales: Mapping[str, Config]
    plain: Config
    features: tuple[Config, ...]
    chunk_key: str
    configurations: tuple[Configuration, ...] = (ANY,)


SPYRE = Setup(
    scales={
        "small": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "short": {"chunk_size": 128, "max_model_len": 256, "max_batch_tkv": 768},
        "tight": {"chunk_size": 128, "max_model_len": 1024, "max_batch_tkv": 2048},
    },
    plain={"prefix_caching": False, "num_blocks": None},
    features=(
        {"prefix_caching": True},
        POOL,
        {"interleave": False},
        {"pausing": False},
        {"long_output_priority": True},
    ),
    chunk_key="chunk_size",
)
ASYNC, CONNECTOR = {"async_scheduling": True}, {"kv_connector": True}
VLLM = Setup(
    scales={
        "small": {"block_size": 2, "max_num_seqs": 4, "max_model_len": 16},
        "short": {"block_size": 16, "max_num_seqs": 4, "max_model_len": 64},
        "tight": {"block_size": 16, "max_num_seqs": 4, "max_model_len": 256},
    },
    plain={"enable_prefix_caching": False, "num_blocks": None},
    features=(
        {"enable_prefix_caching": True},
        POOL,
        {"enable_chunked_prefill": False},
        {"policy": "priority"},
        {"watermark": 0.1, **POOL},
        {"reserve_full_isl": False},
        {"long_prefill_token_threshold": 4},
        {"num_speculative_tokens": 2},
        {"num_lookahead_tokens": 2, "num_speculative_tokens": 2},
        {"async_scheduling": True},
        {"pipeline_parallel_size": 2},
        {"early_completions": 1, "pipeline_parallel_size": 2},
        {"kv_connector": True},
        {"kv_load_failure_policy": "fail", "kv_connector": True},
        {"max_num_encoder_input_tokens": 4, "encoder_cache_size": 4},
    ),
    chunk_key="max_num_batched_tokens",
    configurations=(
        Configuration("one step at a time", {"async_scheduling": False}),
        Configuration("drafts", {"num_speculative_tokens": 2}),
        Configuration("asynchronous", ASYNC),
        Configuration("asynchronous, fast worker", {**ASYNC, "early_completions": 2}),
        Configuration("pipeline of three", {"pipeline_parallel_size": 3}),
        Configuration("asynchronous, pipeline of three", {**ASYNC, "pipeline_parallel_size": 3}),
        Configuration("connector", CONNECTOR),
        Configuration("connector, asynchronous", {**CONNECTOR, **ASYNC}),
        Configuration(
            "connector, asynchronous, policy fail",
            {**CONNECTOR, **ASYNC, "kv_load_failure_policy": "fail"},
        ),
        Configuration("encoder", {"max_num_encoder_input_tokens": 4, "encoder_cache_size": 8}),
    ),
)
NANO_VLLM = Setup(
    scales={
        "small": {"block_size": 2, "num_blocks": 8, "max_num_seqs": 4},
        "short": {"block_size": 16, "num_blocks": 8, "max_num_seqs": 4},
        "tight": {"block_size": 256, "num_blocks": 8, "max_num_seqs": 4},
    },
    plain={},
    features=(),
    chunk_key="max_num_batched_tokens",
)
LLMSERVINGSIM = Setup(
    scales={
        "small": {"block_size": 2, "max_num_seqs": 4},
        "short": {"block_size": 16, "max_num_seqs": 4},
        "tight": {"block_size": 16, "max_num_seqs": 4},
    },
    plain={"enable_prefix_caching": False, "num_blocks": None},
    features=(
        {"enable_prefix_caching": True},
        POOL,
        {"enable_chunked_prefill": False},
        {"prioritize_prefill": True},
        {"long_prefill_token_threshold": 4},
        {"max_num_seqs": 0},
    ),
    chunk_key="max_num_batched_tokens",
)
GENERIC = Setup(
    scales={"small": {"block_size": 2}, "short": {"block_size": 16}, "tight": {"block_size": 16}},
    plain={
        "num_blocks": None,
        "max_num_seqs": None,
        "max_num_batched_tokens": None,
        "max_model_len": None,
        "enable_chunked_prefill": False,
        "enable_prefix_caching": False,
        "order": "any",
    },
    features=(
        POOL,
        {"max_num_seqs": 4},
        {"max_num_batched_tokens": 64},
        {"max_model_len": 64},
        {"enable_chunked_prefill": True},
        {"enable_prefix_caching": True},
        {"order": "fcfs"},
    ),
    chunk_key="max_num_batched_tokens",
)


def setup_of(system: str) -> Setup:
    """How the targets of a registered system are asked."""
    found: Setup = part(system, "setup")
    return found
