"""Which requests can surely run alone, and which can never run: what the systems' answers share.

A target that refuses one of the first is wrong. One that accepts one of the second has to end it.
A target may count in whole blocks, and count the last token, which is never computed: what lies
between is left to it. Lengths in tokens.

Source: target protocol, "Refusals at add".
"""

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]
CanRun = Callable[[Config, int, int], bool]
Limits = Callable[[Config], list[int]]


def fits_pool(config: Config, tokens: int) -> bool:
    """Return whether the pool has blocks for so many tokens."""
    size = config["num_blocks"]
    return size is None or -(-tokens // config["block_size"]) <= size


def fits_pool_and_budget(config: Config, prompt: int, max_tokens: int) -> bool:
    """Return whether all of it fits the pool and, where prompts are not cut, the budget."""
    whole = prompt + max_tokens
    cut = config["enable_chunked_prefill"] or whole <= config["max_num_batched_tokens"]
    return bool(cut) and fits_pool(config, whole)


def nothing_surely(config: Config, prompt: int, max_tokens: int) -> bool:
    """Judge no refusal: the system does not say which requests it must accept."""
    return False


def pool_limit(config: Config) -> list[int]:
    """Return the tokens that fit into the pool, where it has a bound."""
    size = config["num_blocks"]
    return [] if size is None else [size * config["block_size"]]


def no_limits(config: Config) -> list[int]:
    """Return no bound: the system does not say which requests it refuses."""
    return []
