"""Requests that wait until the grammar of their structured output is compiled.

Source: release 0.33.0: RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from ....model.scenario import Request
from .request_history import VllmRequestHistory


def can_be(config: Mapping[str, Any]) -> bool:
    """Return whether requests may have grammars."""
    return bool(config.get("structured_outputs"))


def without_grammars(request: Request) -> Request:
    nothing = {"grammar_begins": 0, "grammar_ends": None, "grammar_drafts": ()}
    turns = tuple([replace(turn, grammar_ends=None) for turn in request.turns])
    return replace(request, grammar_steps=0, grammar_fails=False, turns=turns, **nothing)


def waits(request: VllmRequestHistory) -> bool:
    """Return whether a request waits for its grammar, and not for the next input of its session."""
    return request.blocked > 0 and not request.between_turns


def all_are(config: Mapping[str, Any], live: Collection[VllmRequestHistory]) -> bool:
    """Return whether every unfinished request still waits for its grammar in the coming step."""
    return can_be(config) and all(request.blocked for request in live)


def step(live: Collection[VllmRequestHistory]) -> None:
    for request in live:
        request.blocked = max(request.blocked - 1, 0)
