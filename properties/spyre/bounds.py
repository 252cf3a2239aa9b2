"""Bounds for Spyre: the most steps that requests may take, and which requests can run.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..history.bounds import Bounds, fits_pool, one_after_the_other, pool_limit
from ..history.request_history import RequestHistory

Config = Mapping[str, Any]


def alone(config: Config, request: RequestHistory) -> int:
    """Return the largest number of steps of a request: two per chunk, because of interleaving, plus
    one per token."""
    chunks = -(
        -(request.prompt - min(request.computed, request.prompt)) // int(config["chunk_size"])
    )
    return 2 * chunks + request.max_tokens - request.emitted


def waits(
    config: Config, revision: str, first: RequestHistory, started: Sequence[RequestHistory]
) -> int:
    ahead = sum(alone(config, request) for request in started)
    own = 2 * -(-first.prompt // int(config["chunk_size"]))
    # Faults that cost one step each have rules of their own, so this bound leaves room for them.
    return ahead + own + len(started) + 2


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """Return whether the prompt in whole blocks, plus max_tokens, is within every limit."""
    block = config["block_size"]
    padded = -(-prompt // block) * block + max_tokens
    within = padded <= min(config["max_model_len"], config["max_batch_tkv"])
    return bool(within) and fits_pool(config, padded)


def limits(config: Config) -> list[int]:
    return [config["max_model_len"], config["max_batch_tkv"], *pool_limit(config)]


BOUNDS = Bounds(alone, waits, one_after_the_other, can_run, limits)
