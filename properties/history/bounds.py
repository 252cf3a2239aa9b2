"""How long requests may take at most, in steps, by system: what completion and waiting go by.

Source: target protocol, "Bounds".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...spec.systems import part
from .admissibility import CanRun, Limits, no_limits, nothing_surely
from .request_history import RequestHistory

Config = Mapping[str, Any]


class Bounds(NamedTuple):
    """A system's bounds, in steps.

    `alone`: one request that has the scheduler to itself, from where it is. `waits`: until the
    first in line is scheduled, behind requests that have started; None where nothing bounds it.
    `together`: all requests, each of which alone takes `work` in sum. `can_run`: a request of this
    prompt and max_tokens must not be refused at the door. `limits`: the bounds
    on prompt + max_tokens - 1.
    """

    alone: Callable[[Config, Any], int]
    waits: Callable[[Config, Any, Sequence[Any]], int | None]
    together: Callable[[Config, int, int], int]
    can_run: CanRun = nothing_surely
    limits: Limits = no_limits

    def beyond(self, config: Config, prompt: int, max_tokens: int) -> bool:
        """The request can never run to its end: it exceeds a limit by itself."""
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
    """The bounds of a registered system."""
    found: Bounds = part(system, "bounds")
    return found
