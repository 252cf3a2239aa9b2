"""Requests that wait until the grammar of their structured output is compiled.

Source: release 0.33.0: RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR.
"""

from collections.abc import Collection, Mapping
from typing import Any

from .request_history import VllmRequestHistory


def can_be(config: Mapping[str, Any]) -> bool:
    """Return whether requests may have grammars."""
    return bool(config.get("structured_outputs"))


def all_are(config: Mapping[str, Any], live: Collection[VllmRequestHistory]) -> bool:
    """Return whether every unfinished request still waits for its grammar in the coming step."""
    return can_be(config) and all(request.blocked for request in live)


def step(live: Collection[VllmRequestHistory]) -> None:
    for request in live:
        request.blocked = max(request.blocked - 1, 0)
