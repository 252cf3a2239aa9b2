"""vLLM's KV cache groups: layers with full attention, with a window, or with a circular buffer, and
Mamba layers."""

import dataclasses
import importlib
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from ..protocol_checks import refuse
from . import start_up

KEY, RETENTION, MODE, UNIT = KEYS = (
    *("kv_groups", "prefix_cache_retention_interval"),
    *("mamba_cache_mode", "prefix_match_unit"),
)
MODES = ("none", "align", "all")
FULL, WINDOW, CHUNKS, MAMBA, BUFFER = KINDS = (
    *("full", "sliding_window", "chunked_local", "mamba", "circular_buffer"),
)
# Keys that cannot be combined with several groups, each with the value that turns it off.
NOT_WITH = {
    "pipeline_parallel_size": 1,
    "synchronous_loads": False,
}
LOOKAHEAD = "num_lookahead_tokens"
NOT_WITH_MAMBA = {"encoder_cache_size": 0, "kv_connector": False}


def is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(group, dict) for group in value)


def after_first(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(config.get(KEY, ())[1:])


def check(config: Mapping[str, Any]) -> None:
    """Refuse groups that no layers could form, and features that are not judged with several
    groups."""
    groups = config.get(KEY, [{"kind": FULL}])
    if not groups or groups[0] != {"kind": FULL}:
        raise refuse(KEY, groups, f'a list that begins with {{"kind": "{FULL}"}}')
    if len(groups) > 1 and all(group == {"kind": FULL} for group in groups):
        raise refuse(KEY, groups, "a list in which only the first group is full")
    for number, group in enumerate(groups):
        kind, window, size = group.get("kind"), group.get("window"), config["block_size"]
        whole = kind in (FULL, MAMBA, BUFFER)
        given = group.keys() - {"block_size"}
        if kind not in KINDS or given != ({"kind"} if whole else {"kind", "window"}):
            valid = f'kind {FULL}, {MAMBA} or {BUFFER}, or {WINDOW} or {CHUNKS} with a "window"'
            raise refuse(f"{KEY}[{number}]", group, valid)
        own = group.get("block_size", size)
        if type(own) is not int or own < 1 or (own != size and has_mamba(config)):
            valid = f"a positive integer, or {size} with a {MAMBA} group"
            raise refuse(f"{KEY}[{number}].block_size", own, valid)
        unit = math.lcm(*(other.get("block_size", size) for other in groups))
        if kind == CHUNKS and config["enable_prefix_caching"] and own != unit:
            raise refuse(f"{KEY}[{number}].block_size", own, f"{unit} with a prefix cache")
        if kind == CHUNKS and config["enable_prefix_caching"] and config.get(LOOKAHEAD):
            raise refuse(f"{KEY}[{number}].kind", kind, f"another kind with {LOOKAHEAD}")
        size = own
        if kind == WINDOW and (type(window) is not int or window < 2):
            raise refuse(f"{KEY}[{number}].window", window, "an integer of at least 2")
        if kind == CHUNKS and (type(window) is not int or window < 1 or window % size):
            valid = f"a multiple of block_size ({size})"
            raise refuse(f"{KEY}[{number}].window", window, valid)
    for key, without in NOT_WITH.items():
        if len(groups) > 1 and config.get(key, without) != without:
            raise refuse(KEY, groups, f"one group with {key} {json.dumps(config[key])}")
    if config.get("kv_connector") and any(group["kind"] == BUFFER for group in groups):
        raise refuse("kv_connector", True, f"false with a {BUFFER} group")
    if len(groups) > 1 and config.get("kv_connector") and config.get(LOOKAHEAD):
        raise refuse(LOOKAHEAD, config[LOOKAHEAD], "0 with a connector and several groups")
    drafts = config.get("num_speculative_tokens", 0)
    most = 0 if config.get(MODE) == "all" else config["block_size"] - 1
    if has_mamba(config) and config["enable_prefix_caching"] and drafts > most:
        raise refuse(
            "num_speculative_tokens", drafts, f"at most {most} if there is a {MAMBA} group"
        )
    if (matched := config.get(UNIT)) is not None:
        kinds = {group["kind"] for group in groups[1:]}
        aligns = has_mamba(config) and config["enable_prefix_caching"]
        if not aligns or config.get(MODE) == "all" or drafts or not kinds <= {MAMBA, BUFFER}:
            valid = f"null without drafts and with only {MAMBA} groups that are cached"
            raise refuse(UNIT, matched, valid)
        if config["block_size"] % matched:
            raise refuse(UNIT, matched, f"a divisor of block_size ({config['block_size']})")
    for key, without in NOT_WITH_MAMBA.items():
        if has_mamba(config) and config.get(key, without) != without:
            raise refuse(key, config[key], f"{json.dumps(without)} with a {MAMBA} group")


def has_mamba(config: Mapping[str, Any]) -> bool:
    return any(group["kind"] == MAMBA for group in after_first(config))


def hits_inside(config: Mapping[str, Any]) -> bool:
    """Return whether hits may end inside a block."""
    return bool((config.get(UNIT) or config["block_size"]) < config["block_size"])


def derive_mamba(vllm_config: Any) -> None:
    """Let vLLM derive the mode and the block size of the Mamba cache, as for a model with Mamba
    layers. The mode "all" works only with layers that support it."""
    if vllm_config.cache_config.mamba_cache_mode == "all":
        model = vllm_config.model_config
        supports = {"supports_mamba_prefix_caching": True}
        model._model_info = dataclasses.replace(model._model_info, **supports)
    models = importlib.import_module("vllm.model_executor.models.config")
    models.MambaModelConfig.verify_and_update_config(vllm_config)


# The kind, the window in tokens and the block size in tokens of a group's layers.
Kind = tuple[str, int | None, int]


def kinds(config: Mapping[str, Any]) -> tuple[Kind, ...]:
    return tuple(
        (group["kind"], group.get("window"), group.get("block_size", config["block_size"]))
        for group in config.get(KEY, [{"kind": FULL}])
    )


def specs(groups: Collection[Kind], cache_config: Any, drafts: int) -> list[Any]:
    # The blocks of all groups have the same size in bytes.
    largest = math.lcm(*(size for _, _, size in groups))
    layers = [start_up.attention(size, largest // size) for _, _, size in groups]
    return [
        _spec(kind, window, cache_config, full, drafts)
        for (kind, window, _), full in zip(groups, layers, strict=True)
    ]


def block_sizes(specs: list[Any], vllm_config: Any, kv_cache_config: Any) -> Any:
    """Return the scheduler's block size and the number of tokens per hash, as the release's engine
    core derives them from the groups.

    Older releases use the smallest block size for both. Refuse sizes with which such a release
    does not start.
    """
    sizes = [spec.block_size for spec in specs]
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    if len(specs) > 1 and hasattr(utils, "resolve_kv_cache_block_sizes"):
        return utils.resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    if any(size % min(sizes) for size in sizes):
        valid = f"multiples of the smallest block size ({min(sizes)}) in this release"
        raise refuse(f"{KEY}[...].block_size", sizes, valid)
    return min(sizes), min(sizes)


def _spec(kind: str, window: int | None, cache_config: Any, full: Any, drafts: int) -> Any:
    if kind == FULL:
        return full
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    if kind == MAMBA:
        return interface.MambaSpec(
            block_size=cache_config.mamba_block_size,
            shapes=((1,),),
            dtypes=(full.dtype,),
            page_size_padded=full.page_size_bytes,
            mamba_cache_mode=cache_config.mamba_cache_mode,
            num_speculative_blocks=drafts,
        )
    shape = {key: getattr(full, key) for key in ("num_kv_heads", "head_size", "dtype")}
    if kind == BUFFER:
        if not hasattr(interface, "CircularBufferSpec"):
            raise refuse(KEY, kind, f"another kind than {BUFFER} in this release")
        return interface.CircularBufferSpec(block_size=full.block_size, **shape)
    if kind == CHUNKS:
        return interface.ChunkedLocalAttentionSpec(
            block_size=full.block_size, attention_chunk_size=window, **shape
        )
    return interface.SlidingWindowSpec(block_size=full.block_size, sliding_window=window, **shape)
