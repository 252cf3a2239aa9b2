"""Which requests can surely run alone, and which can never run, by system.

A target that refuses one of the first is wrong. One that accepts one of the second has to end it.

Source: target protocol, "Refusals at add". A target may count in whole blocks, and the last token,
which is never computed, too: what lies between is left to it. Lengths in tokens.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..vllm.history.speculation import lookahead, most_ahead

Config = Mapping[str, Any]
CanRun = Callable[[Config, int, int], bool]
Limits = Callable[[Config], list[int]]


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
    with_drafts = whole + most_ahead(config)
    within = whole <= config["max_model_len"] and fits_pool(config, with_drafts)
    return within and llmservingsim_can_run(config, prompt, max_tokens)


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


def spyre_limits(config: Config) -> list[int]:
    """Each bound on prompt + max_tokens - 1, in tokens: length, limit and pool."""
    return [config["max_model_len"], config["max_batch_tkv"], *pool_limit(config)]


def vllm_limits(config: Config) -> list[int]:
    """Each bound on prompt + max_tokens - 1, in tokens: length, pool, budget for whole prompts."""
    whole = [] if config["enable_chunked_prefill"] else [config["max_num_batched_tokens"]]
    longest = config["max_model_len"]
    ahead = lookahead(config)
    pools = [
        size if min(longest - 1 + ahead, longest) <= size else size - most_ahead(config)
        for size in pool_limit(config)
    ]
    return [longest - 1, *pools, *whole]


def nano_limits(config: Config) -> list[int]:
    """The bound on prompt + max_tokens - 1, in tokens: the pool."""
    return pool_limit(config)


def llmservingsim_limits(config: Config) -> list[int]:
    """Each bound on prompt + max_tokens - 1, in tokens: the pool, and the budget for prompts that
    nothing cuts."""
    budget, threshold = config["max_num_batched_tokens"], config["long_prefill_token_threshold"]
    cut = config["enable_chunked_prefill"] or 0 < threshold <= budget
    return pool_limit(config) + ([] if cut else [budget])


def generic_can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """All of it is within the length, the pool, and, where prompts are not cut, the budget; where
    a bound is the scheduler's own, that is not known."""
    longest, budget = config["max_model_len"], config["max_num_batched_tokens"]
    whole = prompt + max_tokens
    if longest is None or config["num_blocks"] is None or whole > longest:
        return False
    cut = config["enable_chunked_prefill"] or (budget is not None and whole <= budget)
    return bool(cut) and fits_pool(config, whole)


def generic_limits(config: Config) -> list[int]:
    """Each bound on prompt + max_tokens - 1, in tokens: length, pool, budget for whole prompts."""
    longest, budget = config["max_model_len"], config["max_num_batched_tokens"]
    whole = [] if config["enable_chunked_prefill"] or budget is None else [budget]
    return [*([] if longest is None else [longest - 1]), *pool_limit(config), *whole]


def pool_limit(config: Config) -> list[int]:
    """The tokens that fit into the pool, where it has a bound."""
    size = config["num_blocks"]
    return [] if size is None else [size * config["block_size"]]


def no_limits(config: Config) -> list[int]:
    """Of a system that says nothing of its door."""
    return []
