"""Which requests can surely run alone, by system: a target that refuses one of these is wrong.

Source: target protocol, "Refusals at add". A target may count in whole blocks, and the last token,
which is never computed, too: what lies between is left to it. Lengths in tokens.
"""

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]
CanRun = Callable[[Config, int, int], bool]


def fits_pool(config: Config, tokens: int) -> bool:
    """The pool has blocks for so many tokens."""
    size = config["num_blocks"]
    return size is None or -(-tokens // config["block_size"]) <= size


def spyre_can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """In whole blocks the prompt, and all that it may generate, are within length and limit."""
    block = config["block_size"]
    padded = -(-prompt // block) * block + max_tokens
    within = padded <= min(config["max_model_len"], config["max_batch_tkv"])
    return bool(within) and fits_pool(config, padded)


def vllm_can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """All of it is within the length, the pool, and, where prompts are not cut, the budget."""
    whole = prompt + max_tokens
    return whole <= config["max_model_len"] and llmservingsim_can_run(config, prompt, max_tokens)


def nano_can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """All of it is within the pool and the budget."""
    whole = prompt + max_tokens
    return whole <= config["max_num_batched_tokens"] and fits_pool(config, whole)


def llmservingsim_can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """All of it is within the pool, and, where prompts are not cut, within the budget."""
    whole = prompt + max_tokens
    cut = config["enable_chunked_prefill"] or whole <= config["max_num_batched_tokens"]
    return bool(cut) and fits_pool(config, whole)


def nothing_surely(config: Config, prompt: int, max_tokens: int) -> bool:
    """Of a system that says nothing of its door, no refusal is judged."""
    return False
