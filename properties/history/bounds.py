"""The bounds of each system: how many steps a request may take, and whether it can run at all.

A target that refuses a request that can run alone is wrong. One that accepts a request that can
never run has to end it. A target may count in whole blocks, and count the last token, which is
never computed: what lies between is left to it. Lengths in tokens.

Source: target protocol, "Bounds" and "Refusals at add".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...spec.systems import part
from .request_history import RequestHistory

Config = Mapping[str, Any]
CanRun = Callable[[Config, int, int], bool]
Limits = Callable[[Config], list[int]]


def fits_pool(config: Config, tokens: int) -> bool:
    """Return whether the pool has blocks for this many tokens."""
    size = config["num_blocks"]
    return size is None or -(-tokens // config["block_size"]) <= size


def fits_pool_and_budget(config: Config, prompt: int, max_tokens: int) -> bool:
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


class Bounds(NamedTuple):
    """A system's bounds, in steps.

    `alone`: one request that has the scheduler to itself, from where it is. `waits`: until the
    first in line is scheduled, behind requests that have started; None where nothing bounds it.
    `together`: all requests, each of which alone takes `work` in sum. `can_run`: a request of this
    prompt and max_tokens must not be refused at the door. `limits`: the bounds
    on prompt + max_tokens - 1.
    """

    alone: Callable[[Config, Any], int]
    waits: Callable[[Config, str, Any, Sequence[Any]], int | None]
    together: Callable[[Config, int, int], int]
    can_run: CanRun = nothing_surely
    limits: Limits = no_limits

    def beyond(self, config: Config, prompt: int, max_tokens: int) -> bool:
        """Return whether the request exceeds a limit by itself, so that it can never finish."""
        return any(prompt + max_tokens - 1 > limit for limit in self.limits(config))


def in_chunks(config: Config, request: RequestHistory) -> int:
    """Return the steps of a request whose tokens are all computed in chunks of the budget, or of
    the threshold for long prompts: one that is preempted starts again, so `computed` is no help."""
    budget = config["max_num_batched_tokens"]
    chunk = min(budget, config["long_prefill_token_threshold"] or budget)
    return int(-(-(request.prompt + request.max_tokens) // chunk) + request.max_tokens)


def one_after_the_other(config: Config, work: int, requests: int) -> int:
    """Return the steps of all requests where the one that came first is served in every step."""
    return work + 2 * requests + 2


def bounds_of(system: str) -> Bounds:
    bounds: Bounds = part(system, "bounds")
    return bounds
