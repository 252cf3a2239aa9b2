"""Partitions of the prefix cache by salt and adapter, and slots for adapters.

Source: release 0.33.0: generate_block_hash_extra_keys, LoRAConfig.max_loras.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...history.request_history import RequestHistory


def are_possible(config: Mapping[str, Any]) -> bool:
    """Return whether requests may have a salt or an adapter."""
    return bool(config.get("cache_partitions"))


def adapters_are_limited(config: Mapping[str, Any]) -> bool:
    return bool(config.get("max_loras"))


def have_adapters(requests: Iterable[RequestHistory]) -> bool:
    return any(request.partition[0] is not None for request in requests)
