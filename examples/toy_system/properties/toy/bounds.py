"""How long requests may take, in steps. A run that takes longer breaks a rule of every system."""

from collections.abc import Mapping, Sequence
from typing import Any

from schedproof.properties.history.bounds import Bounds
from schedproof.properties.history.request_history import RequestHistory

Config = Mapping[str, Any]


def alone(config: Config, request: RequestHistory) -> int:
    """Return the steps of a request that has the scheduler to itself: its prompt, its tokens."""
    return int(1 + request.max_tokens)


def waits(
    config: Config, revision: str, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """Return the steps until the first in line starts: by then all who came before have ended.

    Return None for a scheduler that lets later requests overtake without a bound.
    """
    return together(config, sum(alone(config, request) for request in started), len(started))


def together(config: Config, work: int, requests: int) -> int:
    """Return the steps of all requests, which alone would take `work`: each prompt delays all."""
    return 2 * work + requests


def can_run(config: Config, prompt: int, max_tokens: int) -> bool:
    """Return True: a target that refuses a request is wrong."""
    return True


BOUNDS = Bounds(alone, waits, together, can_run)
