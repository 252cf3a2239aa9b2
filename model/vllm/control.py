"""Control events: an operator resets the prefix cache, pauses or resumes the scheduler, or puts the
engine to sleep.

Source: release 0.33.0: Scheduler.reset_prefix_cache, PauseState, EngineCore.pause_scheduler, sleep
and wake_up. A server uses these events when its weights are replaced or its memory is needed.
"""

from ..pool import NOTHING_CACHED, Names
from . import scheduler
from .config import VllmConfig
from .queue import Plan
from .revision import Revision
from .state import State

PAUSES = {"pause_new": "pause_new", "pause_all": "pause_all", "resume": None}
# An engine that sleeps has no memory for keys and values, so nothing may run (V1-R38).
SLEEP = {"sleep": "pause_all", "wake_up": None}


def control(config: VllmConfig, state: State, kind: str, revision: Revision) -> tuple[State, bool]:
    if kind in SLEEP:
        state = state._replace(pause=SLEEP[kind])
        return state if kind == "wake_up" else go_to_sleep(config, state, revision), True
    if kind in PAUSES:
        return state._replace(pause=PAUSES[kind]), True
    if kind == "reset_running_requests":
        state = without_running(config, state, revision)
    return reset(state)


def go_to_sleep(config: VllmConfig, state: State, revision: Revision) -> State:
    """Return the state of an engine that has discarded all keys and values. No block can be found
    (V1-R36), and the requests that were running begin again once the engine wakes up."""
    asleep, _ = reset(without_running(config, state, revision))
    return asleep


def reset(state: State) -> tuple[State, bool]:
    """Empty the prefix cache: return the state in which no block can be found (V1-R36), and True.

    If a request has a block, return the unchanged state and False (V1-R35).
    """
    if any(sequence.blocks for sequence in state.holders):
        return state, False
    tail = tuple([(block, None) for block, _ in state.pool.tail])
    names = None if state.pool.names is None else Names()
    pool = state.pool._replace(tail=tail, cached=NOTHING_CACHED, names=names)
    return state._replace(pool=pool), True


def without_running(config: VllmConfig, state: State, revision: Revision) -> State:
    """Return the state in which all running requests are back at the front of the waiting queue, in
    the same order (V1-R37). Their tokens in flight are discarded and will be computed again.
    """
    _, state = revision.begin(config, state)
    plan = Plan.of(config, state)
    for sequence in reversed(state.running):
        plan = scheduler.preempt(config, plan, sequence)
    ran = {sequence.id for sequence in state.running}
    flights = [
        {name: coming for name, coming in flight.items() if name not in ran}
        for flight in state.in_flight
    ]
    return state._replace(
        running=(),
        waiting=plan.waiting,
        pool=plan.pool,
        in_flight=tuple(flights),
        outputs=plan.encoder.outputs,
    )


def decide(config: VllmConfig, state: State, revision: Revision) -> Plan:
    """Return the decision of a paused scheduler.

    If everything is paused, it schedules nothing (V1-R38). If only new requests are paused, it
    schedules the running ones. A request that is preempted during the pause waits until the
    scheduler resumes (V1-R39).
    """
    config, state = revision.begin(config, state)
    plan = Plan.of(config, state)
    if state.pause == "pause_all":
        return plan
    return scheduler.advance_running(config, plan, revision=revision)
