"""Blocked requests: they wait until the grammar of their structured output is compiled.

Source: release 0.33.0: Scheduler._handle_blocked_waiting_request, and the requests that
Scheduler.schedule skips and puts back into their queue.
"""

from typing import Any

from . import in_flight, scheduler
from .config import VllmConfig
from .queue import Plan
from .revision import Revision
from .state import Sequence, State


def arrive(config: VllmConfig, state: State, newcomer: Sequence, revision: Revision) -> State:
    state = scheduler.arrive(config, state, newcomer)
    if config.policy == "priority":
        return state
    return state._replace(waiting=revision.queue_blocked(state.waiting))


def decide(config: VllmConfig, state: State, revision: Revision) -> Plan:
    """Return the decision of a step with blocked requests. A blocked request is not scheduled
    (V1-R41), does not delay others (V1-R42), and keeps its place in the queue (V1-R09)."""
    config, state = revision.begin(config, state)
    plan = scheduler.advance_running(config, Plan.of(config, state), revision=revision)
    if plan.preempted:
        return plan
    after = admit_ready(config, plan, plan.waiting, revision)
    now = {sequence.id: sequence for sequence in (*after.waiting, *after.running)}
    for place, sequence in enumerate(plan.waiting):
        if sequence.invalid and not sequence.blocked:
            ahead = admit_ready(config, plan, plan.waiting[:place], revision)
            if goes_on(config, ahead):
                now[sequence.id] = sequence._replace(refused=True)
    waiting = [now.get(sequence.id, sequence) for sequence in plan.waiting]
    return after._replace(waiting=tuple([s for s in waiting if s.id not in after.scheduled]))


def admit_ready(
    config: VllmConfig, plan: Plan, waiting: tuple[Sequence, ...], revision: Revision
) -> Plan:
    ready = [sequence for sequence in waiting if not (sequence.blocked or sequence.invalid)]
    return scheduler.admit_waiting(config, plan._replace(waiting=tuple(ready)), revision)


def goes_on(config: VllmConfig, plan: Plan) -> bool:
    """Return whether admission has tried every waiting request, and budget and slots are still
    left. Requests that a step in flight still computes do not count."""
    left = [s for s in plan.waiting if not in_flight.is_still_computed(plan.in_flight, s)]
    return not left and plan.budget > 0 and len(plan.running) < config.slots


def count_down(plan: Plan) -> Plan:
    """Count one more step for which the grammars of the waiting requests have been compiling."""
    waiting = [
        sequence._replace(blocked=sequence.blocked - 1) if sequence.blocked else sequence
        for sequence in plan.waiting
    ]
    return plan._replace(waiting=tuple(waiting))


def reports(config: VllmConfig, state: State, plan: Plan) -> bool:
    """Return whether a decision completes in this step. If so, refused requests end in the same
    step."""
    decided = (plan.scheduled,) if plan.scheduled else ()
    flights = state._replace(in_flight=(*plan.in_flight, *decided))
    return config.depth == 1 or in_flight.completes(config, flights, bool(decided))


def end_refused(state: State, seen: dict[str, Any]) -> tuple[State, dict[str, Any]]:
    """End the requests whose grammar cannot be compiled (V1-R43)."""
    over = {sequence.id for sequence in state.waiting if sequence.refused}
    if not over:
        return state, seen
    waiting = tuple([sequence for sequence in state.waiting if not sequence.refused])
    seen = seen | {
        "waiting": [name for name in seen["waiting"] if name not in over],
        "finished": seen["finished"] | dict.fromkeys(over, "error"),
    }
    return state._replace(waiting=waiting), seen
