"""Releases and checkouts of vLLM: how to run them, and the configurations to judge them in."""

from packaging.version import Version

from ....properties.vllm import (
    AHEAD_IN_STAGES,
    ANY_LENGTH,
    CIRCULAR_BUFFERS,
    EVERY_STATE,
    INSIDE_BLOCKS,
    LATER_LIMITS,
    MAMBA_LAYERS,
    PREFILL_INTERVALS,
    REPORTED_HITS,
    V2_AHEAD_IN_STAGES,
    V2_WITHOUT_LOOKAHEAD,
    WITH_THE_NULL_BLOCK,
)
from ....spec.systems import SYSTEMS
from ..checkouts import Checkout
from ..scales import POOL, Configuration, GateScales
from ..supported_releases import Package

ASYNC, CONNECTOR = {"async_scheduling": True}, {"kv_connector": True}
# vLLM derives an encoder's budget and cache size from max_num_batched_tokens.
ENCODER = dict.fromkeys(
    ("max_num_encoder_input_tokens", "encoder_cache_size", "max_num_batched_tokens"), 32
)
# A group with full attention, and one with a sliding window one token longer than a block.
GROUPS = {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 17}]}
MAMBA = {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}]}

SCALES = GateScales(
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
        {"num_speculative_tokens_per_batch_size": [[1, 2, 1]], "num_speculative_tokens": 2},
        {"async_scheduling": True},
        {"pipeline_parallel_size": 2},
        {"early_completions": 1, "pipeline_parallel_size": 2},
        # For classes that always decide ahead; they accept a pipeline only together with
        # async_scheduling.
        {"pipeline_parallel_size": 2, "async_scheduling": True},
        {"early_completions": 1, "async_scheduling": True},
        {"kv_connector": True},
        {"kv_load_failure_policy": "fail", "kv_connector": True},
        ENCODER,
        GROUPS,
        {"prefix_cache_retention_interval": 0, **GROUPS},
        {"cache_partitions": True},
        {"max_loras": 1, "cache_partitions": True},
        {"structured_outputs": True},
        {"streaming_inputs": True},
        {"kv_cache_events": "incremental"},
        {"use_v2_model_runner": True},
    ),
    kinds={
        WITH_THE_NULL_BLOCK: {"block_size": 16, "num_blocks": 4, "max_model_len": 80},
        ANY_LENGTH: {"block_size": 16, "num_blocks": 4, "max_model_len": 128},
        AHEAD_IN_STAGES: {"async_scheduling": True, "pipeline_parallel_size": 3},
        V2_AHEAD_IN_STAGES: {**ASYNC, "pipeline_parallel_size": 2, "use_v2_model_runner": True},
        V2_WITHOUT_LOOKAHEAD: {"num_speculative_tokens": 2, "use_v2_model_runner": True},
        MAMBA_LAYERS: MAMBA,
        CIRCULAR_BUFFERS: {"kv_groups": [{"kind": "full"}, {"kind": "circular_buffer"}]},
        LATER_LIMITS: {"max_num_active_seqs": 1},
        PREFILL_INTERVALS: {"prefill_schedule_interval": 2},
        REPORTED_HITS: {"kv_cache_events": "full"},
        INSIDE_BLOCKS: {
            **MAMBA,
            "enable_prefix_caching": True,
            "block_size": 16,
            "prefix_match_unit": 8,
        },
        EVERY_STATE: {**MAMBA, "enable_prefix_caching": True, "mamba_cache_mode": "all"},
    },
    chunk_key="max_num_batched_tokens",
    configurations=(
        Configuration("one step at a time", {"async_scheduling": False}),
        Configuration("drafts", {"num_speculative_tokens": 2}),
        Configuration("asynchronous", ASYNC),
        Configuration("asynchronous, fast worker", {**ASYNC, "early_completions": 2}),
        Configuration("pipeline of three", {"pipeline_parallel_size": 3}),
        Configuration("asynchronous, pipeline of three", {**ASYNC, "pipeline_parallel_size": 3}),
        Configuration(
            "asynchronous, pipeline of two, V2 model runner",
            {**ASYNC, "pipeline_parallel_size": 2, "use_v2_model_runner": True},
        ),
        Configuration("connector", CONNECTOR),
        Configuration("connector, asynchronous", {**CONNECTOR, **ASYNC}),
        Configuration(
            "connector, asynchronous, policy fail",
            {**CONNECTOR, **ASYNC, "kv_load_failure_policy": "fail"},
        ),
        Configuration("encoder", ENCODER),
        Configuration("groups", GROUPS),
        Configuration("Mamba layers", MAMBA),
        Configuration("structured outputs", {"structured_outputs": True}),
        Configuration("sessions", {"streaming_inputs": True, "policy": "fcfs"}),
        Configuration(
            "sessions, asynchronous", {**ASYNC, "streaming_inputs": True, "policy": "fcfs"}
        ),
        Configuration("groups, few blocks kept", {**GROUPS, "prefix_cache_retention_interval": 0}),
    ),
)


EXAMINED = ("0.19.1", "0.24.0", "0.27.1", "0.28.0", "0.33.0")


def revision_of(version: str) -> str:
    _, *named = SYSTEMS["vllm"].revisions
    older = [name for name in named if Version(name) <= Version(version)]
    return max(older, key=Version, default="documented")


VLLM = Package(
    name="vllm",
    system="vllm",
    versions={version: version for version in EXAMINED},
    revision_of=revision_of,
    size="the Python part of a download of about 430 MB",
    since="0.18.0",
    environment={
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_PLUGINS": "",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # vLLM sets it before it imports torch._inductor
    },
    settings=("VLLM_",),
    # Each version gets its own folder, because the file names are the same in all versions, and
    # each version deletes the files of the others.
    cache_variable="VLLM_CACHE_ROOT",
    # Importing them takes 87 % of the time that importing vLLM takes.
    imports=(
        *("torch", "torch._inductor.lowering", "torch._inductor.compile_fx"),
        *("torch.utils.cpp_extension", "transformers.models.auto.image_processing_auto"),
        *("transformers.models.auto.modeling_auto", "openai.types.responses"),
        *("aiohttp", "fastapi", "xgrammar", "requests", "prometheus_client"),
    ),
)
RELEASES = (VLLM,)
CHECKOUT = Checkout(
    name="vllm",
    system="vllm",
    variable="SCHEDPROOF_VLLM",
    needs=("vllm/v1/core/sched/scheduler.py",),
    newer=("vllm/v1/core/sched/scheduler.py", "class Scheduler"),
    revisions=("documented", None),
    supported="vLLM 0.18.0 or later",
    package=VLLM,
    by_version=True,
)
