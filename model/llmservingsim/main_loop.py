"""The simulator's main loop around the scheduler. It has a clock, a router that holds requests back
until they are due, and a second instance that decodes. It also ends the simulation.

Source: continuous-batching page, "Where the scheduler stops" and "What the scheduler hands back".
"""

from operator import itemgetter
from typing import Any

from ..pool import Pool
from . import scheduler
from .config import LlmServingSimConfig
from .state import Revision, Sequence, State


def arrive(state: State, newcomer: Sequence, tool_steps: int) -> State:
    """Hold a request back in the router until the tool of its session is done."""
    if not tool_steps:
        return scheduler.arrive(state, newcomer)
    kept = (*state.deferred, (state.clock + tool_steps, newcomer))
    return state._replace(deferred=tuple(sorted(kept, key=itemgetter(0))))


def step(
    revision: Revision, config: LlmServingSimConfig, before: State, abort_inside: tuple[str, ...]
) -> tuple[State, dict[str, Any]]:
    state, seen = scheduler.step(revision, config, before, abort_inside)
    state = route_due(state._replace(clock=next_time(before, state, bool(seen["scheduled"]))))
    over = is_over(before)
    seen["deferred"] = [sequence.id for _, sequence in state.deferred]
    seen["waiting"] = [sequence.id for sequence in state.waiting] + seen["deferred"]
    seen["over"] = over
    if config.instances == 2:
        # The decoding instance counts the first token (LSS-R24).
        seen |= {"handed_over": handed_over(seen), "decode_throughput": 0}
    return (State(pool=Pool(config.num_blocks)) if over else state), seen


def next_time(before: State, state: State, scheduled: bool) -> int:
    """Return the time of the next step. If the only sessions left are waiting for a tool, this is
    the time at which the first of them is due (LSS-R21)."""
    if scheduled or before.inflight or not state.deferred:
        return before.clock + 1
    return max(before.clock, state.deferred[0][0])


def route_due(state: State) -> State:
    """Return the state after all due requests have moved from the router to the waiting queue
    (LSS-R37)."""
    due = [sequence for time, sequence in state.deferred if time <= state.clock]
    state = state._replace(deferred=state.deferred[len(due) :])
    for sequence in due:
        state = scheduler.arrive(state, sequence)
    return state


def is_over(state: State) -> bool:
    """Return whether the simulation is over: the scheduler has no requests, no batch is in flight,
    and no session waits for a tool (LSS-R20)."""
    return not (state.waiting or state.running or state.inflight or state.deferred)


def handed_over(seen: dict[str, Any]) -> list[str]:
    """Return the requests that the second instance decodes (LSS-R26)."""
    return [name for name, reason in seen["finished"].items() if reason != "aborted"]
