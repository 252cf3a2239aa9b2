"""How long requests of any scheduler may take at most, in steps, and which of them can run.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..history.bounds import Bounds, fits_pool, pool_limit
from ..history.request_history import RequestHistory

Config = Mapping[str, Any]


def alone(config: Config, request: RequestHistory) -> int:
    """One token a step at worst: how a scheduler cuts a prompt is left to it."""
    return request.prompt + request.max_tokens


def waits(config: Config, first: RequestHistory, started: Sequence[RequestHistory]) -> int | None:
    """First come, first served: until all requests that came before have ended, each of which may
    begin anew once for each of the others, and have every other step only."""
    if config["order"] != "fcfs":
        return None
    ahead = sum(alone(config, request) for request in started)
    return 2 * (len(started) + 1) * ahead + 2 * len(started) + 2


def together(config: Config, work: int, requests: int) -> int:
    """Steps that all requests together may take, at most."""
    return 2 * (requests + 1) * (work + 2 * requests + 2)


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """All of it is within the length, the pool, and, where prompts are not cut, the budget; where
    a bound is the scheduler's own, that is not known."""
    longest, budget = config["max_model_len"], config["max_num_batched_tokens"]
    whole = prompt + max_tokens
    if longest is None or config["num_blocks"] is None or whole > longest:
        return False
    cut = config["enable_chunked_prefill"] or (budget is not None and whole <= budget)
    return bool(cut) and fits_pool(config, whole)


def limits(config: Config) -> list[int]:
    """Each bound on prompt + max_tokens - 1, in tokens: length, pool, budget for whole prompts."""
    longest, budget = config["max_model_len"], config["max_num_batched_tokens"]
    whole = [] if config["enable_chunked_prefill"] or budget is None else [budget]
    return [*([] if longest is None else [longest - 1]), *pool_limit(config), *whole]


BOUNDS = Bounds(alone, waits, together, can_run, limits)
