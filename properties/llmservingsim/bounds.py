"""Bounds for LLMServingSim: the most steps that requests may take, and which requests can run.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..history.bounds import (
    Bounds,
    fits_pool_and_budget,
    in_chunks,
    one_after_the_other,
    pool_limit,
)
from ..history.request_history import RequestHistory
from ..vllm.history.request_history import VllmRequestHistory
from .history import depth

Config = Mapping[str, Any]


def waits(
    config: Config, revision: str, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """Return the largest number of steps until all earlier requests, served in order of arrival,
    have ended. Return None if there is no bound.

    There is no bound if a later request may take the blocks that the first one needs. According to
    the documentation page, this is always possible, because the scheduler tries the next request.
    At HEAD, it is possible only with chunking off, if the first request exceeds the remaining
    budget. There is no bound for a session either, because its tool may run.
    """
    if isinstance(first, VllmRequestHistory) and first.blocked:
        return None
    overtakes = revision == "documented" or not config["enable_chunked_prefill"]
    if overtakes and config["num_blocks"] is not None:
        return None
    return sum(alone(config, request) for request in started) + len(started) + 2 * depth(config)


def alone(config: Config, request: RequestHistory) -> int:
    """Return the largest number of steps that a request takes if no other request runs. With
    several stages, each batch may have to wait until those in flight have completed, one in each
    step."""
    return in_chunks(config, request) * (2 * depth(config) if depth(config) > 1 else 1)


def together(config: Config, work: int, requests: int) -> int:
    return one_after_the_other(config, work, requests) * depth(config)


def limits(config: Config) -> list[int]:
    budget, threshold = config["max_num_batched_tokens"], config["long_prefill_token_threshold"]
    cut = config["enable_chunked_prefill"] or 0 < threshold <= budget
    return pool_limit(config) + ([] if cut else [budget])


BOUNDS = Bounds(alone, waits, together, fits_pool_and_budget, limits)
