"""The bounds of each system: how many steps a request may take, and which requests can run.

A target must not refuse a request that can run alone. If a target accepts a request that can never
run, it must end that request. Whether to accept any other request is up to the target. It may, for
example, count in whole blocks, or count the last token although that token is never computed.
Lengths are in tokens.

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
    size = config["num_blocks"]
    return size is None or -(-tokens // config["block_size"]) <= size


def fits_pool_and_budget(config: Config, prompt: int, max_tokens: int) -> bool:
    whole = prompt + max_tokens
    cut = config["enable_chunked_prefill"] or whole <= config["max_num_batched_tokens"]
    return bool(cut) and fits_pool(config, whole)


def nothing_surely(config: Config, prompt: int, max_tokens: int) -> bool:
    """Return False. No document says which requests the system must accept, so refusals are not
    judged."""
    return False


def pool_limit(config: Config) -> list[int]:
    size = config["num_blocks"]
    return [] if size is None else [size * config["block_size"]]


def no_limits(config: Config) -> list[int]:
    """Return no bounds. No document says which requests the system refuses."""
    return []


def no_request_passes(first: RequestHistory, other: RequestHistory) -> bool:
    return False


class Bounds(NamedTuple):
    """The bounds of a system.

    Attributes:
        alone: the largest number of steps that a request still needs if no other request runs.
        waits: the largest number of steps until the first request in line is scheduled, if only the
            given requests go before it; None if unbounded. The given requests are those that have
            started, and those that `may_pass` the first in line.
        together: the largest number of steps that all requests take together. Its second argument
            is the sum of the steps that each request would need alone.
        can_run: whether a target must accept a request with this prompt and max_tokens.
        limits: the bounds on prompt + max_tokens - 1, in tokens.
        may_pass: whether a request that waits may go before the first in line.
    """

    alone: Callable[[Config, Any], int]
    waits: Callable[[Config, str, Any, Sequence[Any]], int | None]
    together: Callable[[Config, int, int], int]
    can_run: CanRun = nothing_surely
    limits: Limits = no_limits
    may_pass: Callable[[Any, Any], bool] = no_request_passes

    def beyond(self, config: Config, prompt: int, max_tokens: int) -> bool:
        """Return whether a request with this prompt and max_tokens exceeds a limit, and so can
        never finish."""
        return any(prompt + max_tokens - 1 > limit for limit in self.limits(config))


def in_chunks(config: Config, request: RequestHistory) -> int:
    """Return the largest number of steps that a request can take. Its tokens are computed in chunks
    as large as the budget or the threshold for long prompts, whichever is smaller.

    The tokens computed so far make no difference, since a preempted request starts again.
    """
    budget = config["max_num_batched_tokens"]
    chunk = min(budget, config["long_prefill_token_threshold"] or budget)
    return int(-(-(request.prompt + request.max_tokens) // chunk) + request.max_tokens)


def one_after_the_other(config: Config, work: int, requests: int) -> int:
    """Return the largest number of steps that all requests together take, if every step serves the
    earliest request."""
    return work + 2 * requests + 2


def bounds_of(system: str) -> Bounds:
    bounds: Bounds = part(system, "bounds")
    return bounds
