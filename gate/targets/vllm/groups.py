"""Groups of the KV cache in vLLM: layers of full attention, and layers with a window."""

import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..protocol_checks import refuse
from . import start_up

KEY = "kv_groups"
FULL, WINDOW = KINDS = ("full", "sliding_window")
# Keys that the model of several groups does not have, with what they are without.
NOT_WITH = {
    "async_scheduling": False,
    "pipeline_parallel_size": 1,
    "kv_connector": False,
    "num_lookahead_tokens": 0,
}


def is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(group, dict) for group in value)


def further(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the groups after the first."""
    return list(config.get(KEY, ())[1:])


def check(config: Mapping[str, Any]) -> None:
    """Refuse groups that no layer has, and features that are not judged with several groups; raises
    RefusedError."""
    groups = config.get(KEY, [{"kind": FULL}])
    if not groups or groups[0] != {"kind": FULL}:
        raise refuse(KEY, groups, f'a list that begins with {{"kind": "{FULL}"}}')
    if len(groups) > 1 and all(group.get("kind") == FULL for group in groups):
        raise refuse(KEY, groups, "one full group, or another kind behind it")
    for number, group in enumerate(groups):
        keys = {"kind", "window"} if group.get("kind") == WINDOW else {"kind"}
        window = group.get("window", 2)
        if group.get("kind") not in KINDS or group.keys() != keys:
            valid = f'{{"kind": "{FULL}"}}, or {{"kind": "{WINDOW}", "window": TOKENS}}'
            raise refuse(f"{KEY}[{number}]", group, valid)
        if not isinstance(window, int) or isinstance(window, bool) or window < 2:
            raise refuse(f"{KEY}[{number}].window", window, "an integer of at least 2")
    for key, without in NOT_WITH.items():
        if len(groups) > 1 and config.get(key, without) != without:
            raise refuse(KEY, groups, f"one group with {key} {json.dumps(config[key])}")


def windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the window of each group, in tokens; None for full attention."""
    return tuple(group.get("window") for group in config.get(KEY, [{"kind": FULL}]))


def specs(windows: Iterable[int | None], block_size: int) -> list[Any]:
    """Return vLLM's specification of the KV cache for a layer of each group."""
    full = start_up.attention(block_size)
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    return [
        full
        if window is None
        else interface.SlidingWindowSpec(
            block_size=block_size,
            num_kv_heads=full.num_kv_heads,
            head_size=full.head_size,
            dtype=full.dtype,
            sliding_window=window,
        )
        for window in windows
    ]
