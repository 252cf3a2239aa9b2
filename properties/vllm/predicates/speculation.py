"""Drafts of speculative decoding: their slots, and what comes out when they were verified.

Source: chunked-prefill chapter, code of allocate_slots; release 0.28.0: update_from_output.
"""

from ....model.observation import Step
from ...rules.pool import blocks_for
from ...rules.predicate import Predicate
from ..history import in_flight, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .budget import scheduled
from .decision import computes, given


def lookahead_without_block(history: VllmRun, step: Step) -> str | None:
    """A running request has blocks for what it computes and for the drafter's lookahead
    (V1CP-R30)."""
    ahead = speculation.lookahead(history.config)
    for one in _look_ahead(history, step):
        held, slots = (step.blocks or {}).get(one.id), given(history, step, one.id)
        if held is not None and len(held) < blocks_for(history, slots):
            return (
                f"{one.id} holds {len(held)} blocks; what it computes and {ahead} tokens of "
                f"lookahead need {blocks_for(history, slots)}"
            )
    return None


def lookahead_needs_block(history: VllmRun, step: Step) -> bool:
    """The lookahead of a running request needs a block that what it computes does not need."""
    return any(
        blocks_for(history, computes(history, step, one))
        < blocks_for(history, given(history, step, one.id))
        for one in _look_ahead(history, step)
    )


def _look_ahead(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Running requests that compute, where the drafter looks ahead."""
    if not speculation.lookahead(history.config):
        return []
    return [one for one in scheduled(history, step) if one.started]


def verified_wrongly(history: VllmRun, step: Step) -> str | None:
    """A request emits the drafts that are right, up to the first that is wrong, and one token more;
    none beyond its last (V1CP-R35)."""
    for one, drafts in _verified(history, step):
        tokens = (step.emitted or {}).get(one.id)
        if not tokens or one.id in history.aborts_inside or not one.accepted:
            continue  # a recorded run does not say how many of its drafts are right
        right = speculation.right_of(one, drafts)
        due = 1 + right if one.output_len is None else min(1 + right, max(one.tokens_left, 1))
        if tokens != due:
            return (
                f"{one.id} emits {tokens} tokens; {right} of its {drafts} drafts are right: "
                f"{due} are due"
            )
    return None


def some_right_some_wrong(history: VllmRun, step: Step) -> bool:
    """Of the drafts of a request some are right and some are wrong."""
    return any(
        0 < speculation.right_of(one, drafts) < drafts for one, drafts in _verified(history, step)
    )


def _verified(history: VllmRun, step: Step) -> list[tuple[VllmRequestHistory, int]]:
    """The requests of the decision that completes, each with its drafts."""
    if in_flight.depth(history.config) == 1:
        return [
            (one, min(speculation.drafts_computed(one, step.scheduled[one.id]), one.drafted))
            for one in scheduled(history, step)
        ]
    due = in_flight.due(history, step)
    return [
        (history.live[name], coming.proposed)
        for name, coming in due.items()
        if coming is not None and name in history.live
    ]


PREDICATES = {
    "V1CP-R30": Predicate(lookahead_without_block, lookahead_needs_block),
    "V1CP-R35": Predicate(verified_wrongly, some_right_some_wrong),
}
