"""Decode pausing: which requests sit out while the whole batch would be too large for the limit.

Source: releases from 2.4.0 (rule SPY-R51); the scheduling page does not know it.
"""

from collections.abc import Callable
from collections.abc import Sequence as Members
from functools import partial

from . import tkv
from .config import SpyreConfig
from .state import Sequence, State


def pause_and_resume(config: SpyreConfig, state: State) -> State:
    """The state in which exactly those requests decode that the next step has room for.

    Asked in order of fairness, each stays if the batch of requests that stay is within the limit
    with it. A request that stays keeps its place; a request that returns goes to the end.
    """
    # A part of a batch is never beyond the limit where the whole is within it.
    if not state.paused and fits_limit(config, state.decoding):
        return state
    kept, paused = settled(fairness_order(config, state), partial(fits_limit, config))
    staying = {one.id: one for one in kept}
    returning = {one.id for one in state.paused}
    stayed = [
        staying.get(one.id, one) for one in state.running if one.id in staying or not one.prefilled
    ]
    returned = [one for one in kept if one.id in returning]
    return state._replace(running=(*stayed, *returned), paused=tuple(paused))


def settled(
    asked: Members[Sequence], fits: Callable[[list[Sequence]], bool]
) -> tuple[list[Sequence], list[Sequence]]:
    """Which of the requests stay, and which are paused: each stays if all that stay fit with it."""
    kept: list[Sequence] = []
    paused: list[Sequence] = []
    for one in asked:
        if fits([*kept, one]):
            kept.append(one._replace(paused_steps=0))
        else:
            paused.append(one._replace(paused_steps=one.paused_steps + 1))
    return kept, paused


def fairness_order(config: SpyreConfig, state: State) -> list[Sequence]:
    """Paused longest first (SPY-P01), then fewest generated tokens (most, with
    long_output_priority)."""
    all_requests = [*state.paused, *state.decoding]
    all_requests.sort(key=lambda one: one.generated, reverse=config.long_output_priority)
    return sorted(all_requests, key=lambda one: one.paused_steps, reverse=True)


def fits_limit(config: SpyreConfig, batch: Members[Sequence]) -> bool:
    """The next decode step of this batch is within max_batch_tkv."""
    reached = tkv.max_tkv([one.computed + 1 for one in batch], config.block_size)
    return len(batch) * reached <= config.max_batch_tkv
