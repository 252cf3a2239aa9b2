"""Bounds for nano-vLLM: the most steps that requests may take, and which requests can run.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..history.bounds import Bounds, fits_pool, pool_limit
from ..history.request_history import RequestHistory

Config = Mapping[str, Any]


def alone(config: Config, request: RequestHistory) -> int:
    """Return the largest number of steps of a request: those of its prefill, chunk by chunk, plus
    one per token."""
    chunks = -(-(request.prompt + request.max_tokens) // config["max_num_batched_tokens"])
    return int(chunks + request.max_tokens)


def waits(
    config: Config, revision: str, first: RequestHistory, started: Sequence[RequestHistory]
) -> int:
    return together(config, sum(alone(config, request) for request in started), len(started))


def together(config: Config, work: int, requests: int) -> int:
    """Return an upper bound on the number of steps that all requests take in total.

    The oldest request gets a token in each decode step. Between two decode steps, all others that
    fit into the pool may have to be prefilled again. This takes a limited number of steps, because
    any two consecutive prefill steps together exceed the budget of one step, or need more slots
    than one step has.
    """
    pool = config["block_size"] * config["num_blocks"]
    full_steps = 2 * -(-pool // config["max_num_batched_tokens"])
    between = full_steps + -(-requests // config["max_num_seqs"]) + 1
    return int((work + 1) * (between + 1))


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    whole = prompt + max_tokens
    return whole <= config["max_num_batched_tokens"] and fits_pool(config, whole)


def limits(config: Config) -> list[int]:
    return pool_limit(config)


BOUNDS = Bounds(alone, waits, together, can_run, limits)
