"""The configuration values with which each shape of workload runs on vLLM."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...model.scenario import Segment
from ..search.workloads import FEATURES, MORE
from .history import encoder

PICTURE, TITLES = "picture", "abcdef"
# The published sizes; pools that run out, and pools that do not.
_PUBLISHED: dict[str, Sequence[Any]] = {
    **{"max_num_seqs": (128, 256), "max_num_batched_tokens": (2048, 8192)},
    **{"enable_prefix_caching": (True, False), "policy": ("fcfs", "priority")},
}
_FULL = {"kind": "full"}
_GROUPS = [_FULL, {"kind": "sliding_window", "window": 40}]
_ADAPTERS: dict[str, Any] = {
    "max_loras": 2,
    "cache_partitions": True,
    "enable_prefix_caching": True,
    "policy": "fcfs",  # under the priority policy, the documents do not say who is next
}
# An encoder whose cache holds less than the running requests need at once.
_ENCODER: dict[str, Any] = {
    **{"max_num_encoder_input_tokens": 64, "encoder_cache_size": 64},
    **{"max_num_batched_tokens": 64, "long_prefill_token_threshold": 24, "policy": "fcfs"},
    **{"num_blocks": 40, "max_num_seqs": 16, "num_speculative_tokens": 0},
    "async_scheduling": False,
}
_GRAMMARS: dict[str, Any] = {"structured_outputs": True, "policy": "fcfs", "max_num_seqs": 16}
# Requests that wait for something of their own while the pool is scarce.
_IN_SCARCE: Sequence[dict[str, Any]] = (
    {
        **{"kv_connector": True, "policy": "fcfs"},
        **{"num_blocks": 9, "max_num_seqs": 16, "max_num_batched_tokens": 512},
    },
    _ADAPTERS
    | {"max_loras": 1, "max_num_seqs": 3, "async_scheduling": False, "num_speculative_tokens": 0},
    {"structured_outputs": True, "policy": "priority", "num_blocks": 9, "max_num_seqs": 16},
    _ENCODER,
    {
        **{"pipeline_parallel_size": 4, "async_scheduling": False, "num_speculative_tokens": 0},
        **{"num_blocks": 16, "max_num_seqs": 16},
    },
    {
        **{"prefill_schedule_interval": 3, "policy": "fcfs", "max_num_seqs": 16},
        **{"async_scheduling": False, "num_speculative_tokens": 0, "num_blocks": None},
        **{"max_num_batched_tokens": 512, "long_prefill_token_threshold": 24},
    },
)
_OPERATED: dict[str, Any] = {
    **{"async_scheduling": True, "num_speculative_tokens": 0},
    **{"max_model_len": 144, "max_num_seqs": 16},
}
WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "crowd": _PUBLISHED
    | {"max_model_len": (512,), "num_blocks": (1000, None), "watermark": (0.6, 0.0)},
    "packed": {
        **_PUBLISHED,
        **{"max_model_len": (512,), "num_blocks": (90, 48)},
        **{"enable_chunked_prefill": (True, False), "watermark": (0.0, 0.1)},
        FEATURES: (
            *({}, {"kv_connector": True}, {"kv_groups": _GROUPS}, _ADAPTERS),
            *({"num_speculative_tokens": 3}, {"kv_connector": True}),
            _ADAPTERS | {"max_loras": 1, "max_num_seqs": 3},
        ),
    },
    "long": {
        **{"max_num_seqs": (3, 24), "max_num_batched_tokens": (64, 512), "max_model_len": (128,)},
        **{"num_blocks": (24, 12), "policy": ("fcfs", "priority")},
    },
    "idle": {**_PUBLISHED, "max_model_len": (512,), "num_blocks": (None, 48)},
    "deep": _PUBLISHED
    | {"max_num_seqs": (1, 32, 48), "max_model_len": (131_072,), "num_blocks": (30_000,)}
    | {"max_num_batched_tokens": (32_768, 2048, 8192)},
    "loose": _PUBLISHED | {"max_model_len": (8192,), "enable_chunked_prefill": (True, True, False)},
    "full": {
        **{"max_num_seqs": (256, 512), "max_num_batched_tokens": (8192, 2048)},
        **{"max_model_len": (16_384,), "num_blocks": (None, 1000), "policy": ("fcfs", "priority")},
        "watermark": (0.0, 0.25),
    },
    "scarce": {
        **{"max_num_seqs": (4, 16), "max_num_batched_tokens": (64, 512), "max_model_len": (144,)},
        **{"num_blocks": (9, 16, 40), "policy": ("fcfs", "priority")},
        **{"long_prefill_token_threshold": (0, 24), "watermark": (0.0, 0.1)},
        **{"num_speculative_tokens": (0, 3), "async_scheduling": (False, False, True)},
        "kv_cache_events": ("none", "none", "incremental"),
        FEATURES: (*_IN_SCARCE, *2 * (_ENCODER,), *2 * (_GRAMMARS,), *3 * ({},)),
        MORE: len(_IN_SCARCE),
    },
    "brim": {**_PUBLISHED, "max_model_len": (512,), "num_blocks": (40, 64)},
    "wide": {
        **{**_PUBLISHED, "max_num_batched_tokens": (16_384, 2048)},
        **{"max_model_len": (16_384,), "num_blocks": (6000, 1100)},
        "long_prefill_token_threshold": (3072, 0),
    },
    "whole": {
        **{"enable_chunked_prefill": (False,), "max_model_len": (128,), "max_num_seqs": (64,)},
        **{"max_num_batched_tokens": (128,), "num_blocks": (24, 12, 8)},
        **{"enable_prefix_caching": (False, True), "policy": ("fcfs", "priority")},
        **{"num_speculative_tokens": (0, 3), "num_lookahead_tokens": (0, 3, 3)},
    },
    "operated": {
        **{"max_num_seqs": (16, 128), "max_num_batched_tokens": (256, 2048)},
        **{"max_model_len": (512,), "num_blocks": (None, 64), "policy": ("fcfs", "priority")},
        **{"enable_prefix_caching": (True,), "async_scheduling": (False, True)},
        "num_speculative_tokens": (0, 3),
        # Requests that are preempted, or computed ahead, as the operator interferes.
        FEATURES: (
            _OPERATED | {"policy": "priority", "num_blocks": 20},
            *3 * ({},),
            _OPERATED | {"policy": "fcfs", "num_blocks": 10},
            *3 * ({},),
        ),
        MORE: 1,
    },
    "sharers": {
        **{"max_num_seqs": (512, 1024), "max_num_batched_tokens": (1024, 8192)},
        **{"max_model_len": (512,), "num_blocks": (2000, 600), "policy": ("priority", "fcfs")},
        "enable_prefix_caching": (True,),
    },
}


def pictures(config: Mapping[str, Any]) -> Sequence[Segment]:
    """Return the encoder inputs that prompts may contain: the cache has room for one or for three
    of a kind."""
    if not encoder.encodes(config):
        return ()
    room = min(config["max_num_encoder_input_tokens"], config["encoder_cache_size"])
    third, half = max(room // 3, 1), room // 2 + 1
    sizes = third, third, half, half, room
    return [(f"{PICTURE} {title} of {size}", size) for size in sizes for title in TITLES]


def more_fields(config: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Return the values to draw from for further fields of requests: adapters, loads, the sending
    of blocks after the end, and grammars."""
    fields: dict[str, Sequence[Any]] = {}
    if config.get("max_loras"):
        fields["lora"] = (None, "one", "two", "three")
    if config.get("kv_connector"):
        block, whole = config["block_size"], config["max_model_len"]
        fields["send_steps"] = (None, None, 0, 5, 40)
        # Most loads bring only a part of the prompt; the rest needs further blocks.
        fields |= {"external_tokens": (0, block, 2 * block, whole), "load_steps": (0, 1, 9)}
    if config.get("structured_outputs"):
        fields["grammar_steps"] = (0, 0, 2, 9, 30)
    return fields
