"""Sessions: requests that continue with another input after a turn has ended.

Between two turns, a session is like a request whose load has finished: it waits, holds blocks, and
starts with the tokens that it has computed.

Source: release 0.33.0: Scheduler._update_request_as_session.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ....model.observation import Step
from .request_history import VllmRequestHistory

KEY = "streaming_inputs"


def are_held(config: Mapping[str, Any]) -> bool:
    return bool(config.get(KEY))


def awaiting(live: Mapping[str, VllmRequestHistory]) -> list[VllmRequestHistory]:
    """Return the sessions whose next input has not arrived by the coming step."""
    return [request for request in live.values() if request.between_turns and request.blocked]


def ends_turn(step: Step, request: VllmRequestHistory) -> bool:
    """Return whether a session emits the last token of a turn in this step, and another turn
    follows."""
    emitted = request.emitted + (step.emitted or {}).get(request.id, 0)
    return bool(request.turns) and emitted == request.output_len


def step(live: Collection[VllmRequestHistory], number: int) -> list[str]:
    """At the end of step `number`, count down to the next input of each session. Begin the next
    turn of each session whose turn has ended, and return these sessions."""
    ended = []
    for request in live:
        if request.between_turns:
            request.blocked = max(request.blocked - 1, 0)
        if request.turns and request.emitted == request.output_len:
            _end_turn(request, number)
            ended.append(request.id)
    return ended


def _end_turn(request: VllmRequestHistory, number: int) -> None:
    """Begin the next turn. The last token of the previous turn is dropped, even if it was computed
    ahead."""
    turn, *later = request.turns
    kept = request.emitted - 1
    output = ((f"out:{request.id}", kept),) if kept else ()
    request.content = (*request.content, *output, *turn.prompt)
    known = request.prompt + kept
    request.prompt = known + turn.prompt_len
    request.max_tokens, request.output_len = turn.max_tokens, turn.tokens_to_emit
    request.turns = tuple(later)
    request.arrived_blocked = turn.grammar_ends is not None
    request.grammar_begins, request.grammar_ends = 0, turn.grammar_ends
    request.slots = request.computed
    request.tokens_loading = request.computed - request.tokens_in_flight
    request.recompute_from = min(request.max_computed, known)
    request.tokens_in_flight, request.begun = 0, ()
    request.computed = request.prefix_hit = request.emitted = request.regenerated = 0
    request.between_turns, request.parked_since = True, number
    request.blocked, request.aside = turn.delay or 0, turn.delay is not None
