"""Blocked requests: they wait until the grammar of their structured output is compiled.

Source: release 0.33.0: Scheduler._handle_blocked_waiting_request, and the requests that
Scheduler.schedule skips and puts back into their queue.
"""

from . import scheduler
from .config import VllmConfig
from .queue import Plan
from .revision import Revision
from .state import Sequence, State


def arrive(config: VllmConfig, state: State, newcomer: Sequence, revision: Revision) -> State:
    """Return the state with a newcomer that is blocked."""
    state = scheduler.arrive(config, state, newcomer)
    if config.policy == "priority":
        return state
    return state._replace(waiting=revision.queue_blocked(state.waiting))


def decide(config: VllmConfig, state: State, revision: Revision) -> Plan:
    """Return the decision of a step: a blocked request is not scheduled (V1-R41) and holds up no
    other (V1-R42). It keeps its place in the queue (V1-R09)."""
    config, state = revision.begin(config, state)
    plan = scheduler.advance_running(config, Plan.of(config, state), revision=revision)
    if plan.preempted:
        return plan
    ready = tuple([sequence for sequence in plan.waiting if not sequence.blocked])
    after = scheduler.admit_waiting(config, plan._replace(waiting=ready), revision)
    now = {sequence.id: sequence for sequence in (*after.waiting, *after.running)}
    waiting = [now.get(sequence.id, sequence) for sequence in plan.waiting]
    return after._replace(waiting=tuple([s for s in waiting if s.id not in after.scheduled]))


def nearer(plan: Plan) -> Plan:
    """Return the plan in which the grammars of all waiting requests are a step nearer."""
    waiting = [
        sequence._replace(blocked=sequence.blocked - 1) if sequence.blocked else sequence
        for sequence in plan.waiting
    ]
    return plan._replace(waiting=tuple(waiting))
