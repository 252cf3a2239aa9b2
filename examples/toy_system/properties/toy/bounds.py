"""Upper bounds on the steps that requests take. A run that takes longer breaks a rule of every
system."""

from collections.abc import Mapping, Sequence
from typing import Any

from schedproof.properties.history.bounds import Bounds
from schedproof.properties.history.request_history import RequestHistory

Config = Mapping[str, Any]


def alone(config: Config, request: RequestHistory) -> int:
    """Return the steps of a request that has the scheduler to itself: one for its prompt, and one
    per token."""
    return int(1 + request.max_tokens)


def waits(
    config: Config, revision: str, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """Return the steps until the first in line starts, when all earlier requests have ended.

    Return None for a scheduler that lets later requests overtake without a bound.
    """
    return together(config, sum(alone(config, request) for request in started), len(started))


def together(config: Config, work: int, requests: int) -> int:
    """Return the steps of all requests, which would take `work` steps one by one; each prompt
    delays all others."""
    return 2 * work + requests


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """Return True: a target must accept every request."""
    return True


BOUNDS = Bounds(alone, waits, together, can_run)
