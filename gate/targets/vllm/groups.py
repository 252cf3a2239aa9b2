"""vLLM's KV cache groups: layers with full attention, layers with a window, and Mamba layers."""

import dataclasses
import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..protocol_checks import refuse
from . import start_up

KEY, RETENTION, MODE = KEYS = (
    "kv_groups",
    "prefix_cache_retention_interval",
    "mamba_cache_mode",
)
MODES = ("none", "align", "all")
FULL, WINDOW, CHUNKS, MAMBA = KINDS = ("full", "sliding_window", "chunked_local", "mamba")
# Keys that cannot be used with several groups, with the values that mean that they are unused.
NOT_WITH = {
    "pipeline_parallel_size": 1,
    "kv_connector": False,
    "num_lookahead_tokens": 0,
}
NOT_WITH_MAMBA = {"num_speculative_tokens": 0, "encoder_cache_size": 0}


def is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(group, dict) for group in value)


def after_first(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(config.get(KEY, ())[1:])


def check(config: Mapping[str, Any]) -> None:
    """Refuse groups for which there are no such layers, and features that are not judged with
    several groups."""
    groups = config.get(KEY, [{"kind": FULL}])
    if not groups or groups[0] != {"kind": FULL}:
        raise refuse(KEY, groups, f'a list that begins with {{"kind": "{FULL}"}}')
    if len(groups) > 1 and all(group.get("kind") == FULL for group in groups):
        raise refuse(KEY, groups, "a single full group, or another kind after it")
    for number, group in enumerate(groups):
        kind, window, size = group.get("kind"), group.get("window"), config["block_size"]
        whole = kind in (FULL, MAMBA)
        if kind not in KINDS or group.keys() != ({"kind"} if whole else {"kind", "window"}):
            valid = f'kind {FULL} or {MAMBA}, or kind {WINDOW} or {CHUNKS} with a "window"'
            raise refuse(f"{KEY}[{number}]", group, valid)
        if kind == WINDOW and (type(window) is not int or window < 2):
            raise refuse(f"{KEY}[{number}].window", window, "an integer of at least 2")
        if kind == CHUNKS and (type(window) is not int or window < 1 or window % size):
            valid = f"a multiple of block_size ({size})"
            raise refuse(f"{KEY}[{number}].window", window, valid)
    if config.get(RETENTION):
        raise refuse(RETENTION, config[RETENTION], "0 or null")
    for key, without in NOT_WITH.items():
        if len(groups) > 1 and config.get(key, without) != without:
            raise refuse(KEY, groups, f"one group with {key} {json.dumps(config[key])}")
    for key, without in NOT_WITH_MAMBA.items():
        if has_mamba(config) and config.get(key, without) != without:
            raise refuse(key, config[key], f"{without} with a {MAMBA} group")


def has_mamba(config: Mapping[str, Any]) -> bool:
    return any(group["kind"] == MAMBA for group in after_first(config))


def derive_mamba(vllm_config: Any) -> None:
    """Let vLLM derive the mode and block size of the Mamba cache, as it does for a model with Mamba
    layers. The mode all needs layers that support it."""
    if vllm_config.cache_config.mamba_cache_mode == "all":
        model = vllm_config.model_config
        supports = {"supports_mamba_prefix_caching": True}
        model._model_info = dataclasses.replace(model._model_info, **supports)
    models = importlib.import_module("vllm.model_executor.models.config")
    models.MambaModelConfig.verify_and_update_config(vllm_config)


def kinds(config: Mapping[str, Any]) -> tuple[tuple[str, int | None], ...]:
    return tuple(
        (group["kind"], group.get("window")) for group in config.get(KEY, [{"kind": FULL}])
    )


def specs(groups: Iterable[tuple[str, int | None]], cache_config: Any) -> list[Any]:
    return [_spec(kind, window, cache_config) for kind, window in groups]


def _spec(kind: str, window: int | None, cache_config: Any) -> Any:
    block_size = cache_config.block_size
    full = start_up.attention(block_size)
    if kind == FULL:
        return full
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    if kind == MAMBA:
        return interface.MambaSpec(
            block_size=cache_config.mamba_block_size,
            shapes=((1,),),
            dtypes=(full.dtype,),
            page_size_padded=full.page_size_bytes,  # blocks of all groups have the same size
            mamba_cache_mode=cache_config.mamba_cache_mode,
        )
    shape = {key: getattr(full, key) for key in ("num_kv_heads", "head_size", "dtype")}
    if kind == CHUNKS:
        return interface.ChunkedLocalAttentionSpec(
            block_size=block_size, attention_chunk_size=window, **shape
        )
    return interface.SlidingWindowSpec(block_size=block_size, sliding_window=window, **shape)
