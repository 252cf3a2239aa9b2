"""Bounds for any scheduler: the most steps that requests may take, and which requests can run.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..history.bounds import Bounds, fits_pool, pool_limit
from ..vllm.history import in_flight, loads, speculation
from ..vllm.history.request_history import VllmRequestHistory as RequestHistory
from . import pools

Config = Mapping[str, Any]


def alone(config: Config, request: RequestHistory) -> int:
    """Return the largest number of steps that a request can take. In the worst case, the scheduler
    computes one token at a time, and each token takes as many steps as there can be decisions in
    flight.
    """
    steps = (request.prompt + request.max_tokens) * in_flight.depth(config)
    return steps + request.deferrals


def waits(
    config: Config, revision: str, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """Return the largest number of steps until all requests that go before the first have ended.

    In the worst case, each of these requests starts again once for each of the others, and runs
    only in every other step. There is no bound with more than two decisions in flight, since
    preempted requests may overtake the first in line again and again. There is none with a
    connector either, since all others may overtake a request while it is loading.
    """
    if config["order"] != "fcfs" or in_flight.depth(config) > 2 or loads.are_made(config):
        return None
    ahead = sum(alone(config, request) for request in started)
    return 2 * (len(started) + 1) * ahead + 2 * (len(started) + 1) * in_flight.depth(config)


def together(config: Config, work: int, requests: int) -> int:
    return 2 * (requests + 1) * (work + 2 * (requests + 1) * in_flight.depth(config))


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """Return whether a request certainly fits: into max_model_len, into the pool of each group and,
    if prompts are not split, into the budget. Return False if one of these limits is left to the
    scheduler, and therefore unknown.
    """
    longest, budget = config["max_model_len"], config["max_num_batched_tokens"]
    whole = prompt + max_tokens
    if longest is None or config["num_blocks"] is None or whole > longest:
        return False
    cut = config["enable_chunked_prefill"] or (budget is not None and whole <= budget)
    fits = fits_pool(config, whole + ahead(config)) and pools.fit(config, whole, ahead(config))
    return bool(cut) and fits


def ahead(config: Config) -> int:
    """Return the number of tokens beyond the known ones for which a request may have blocks: its
    drafts and, if decisions are made ahead, the drafts of the previous and the next decision."""
    return speculation.drafts(config) * (3 if speculation.decides_ahead(config) else 1)


def limits(config: Config) -> list[int]:
    longest, budget = config["max_model_len"], config["max_num_batched_tokens"]
    whole = [] if config["enable_chunked_prefill"] or budget is None else [budget]
    room = [*pool_limit(config), *pools.limits(config)]
    return [*([] if longest is None else [longest - 1]), *room, *whole]


def may_pass(first: RequestHistory, other: RequestHistory) -> bool:
    """Return whether a request that waits may go before the first in line, which may be behind all
    that waited when it was preempted."""
    return first.preemptions > 0


BOUNDS = Bounds(alone, waits, together, can_run, limits, may_pass)
