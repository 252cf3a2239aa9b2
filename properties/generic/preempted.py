"""Preempted requests: no other request starts while a preempted one that must go first is waiting.

Source: target protocol, "Priorities" and "Preempted requests".
"""

from collections.abc import Callable, Iterator

from ...model.observation import Step
from ..vllm.history import loads
from ..vllm.history.request_history import VllmRequestHistory
from ..vllm.history.run import VllmRun, state_of
from .history import preempted_after

GoesBefore = Callable[[VllmRun, VllmRequestHistory, VllmRequestHistory], bool]


def overtaken_by_a_less_important_one(history: VllmRun, step: Step) -> str | None:
    """Check that no request starts while a more important preempted request waits (GEN-R41)."""
    for waiting, new in _pairs(history, _is_more_important):
        if new.id in step.scheduled and waiting.id not in step.scheduled:
            return (
                f"{new.id} with priority {new.priority} starts, but {waiting.id} with priority "
                f"{waiting.priority} was preempted and still waits"
            )
    return None


def overtaken_by_a_later_one(history: VllmRun, step: Step) -> str | None:
    """Under first come, first served, check that a newcomer starts only after all requests
    preempted before its arrival (GEN-R42)."""
    for waiting, new in _pairs(history, _was_preempted_before):
        if new.id in step.scheduled and waiting.id not in step.scheduled:
            return (
                f"{new.id} starts, but {waiting.id} was preempted before {new.id} arrived, and "
                "still waits"
            )
    return None


def more_important_one_was_preempted(history: VllmRun, step: Step) -> bool:
    return _one_of_them_runs(history, step, _is_more_important)


def one_was_preempted_earlier(history: VllmRun, step: Step) -> bool:
    return _one_of_them_runs(history, step, _was_preempted_before)


def _is_more_important(
    history: VllmRun, waiting: VllmRequestHistory, new: VllmRequestHistory
) -> bool:
    return bool(history.config.get("order_by_priority")) and waiting.priority < new.priority


def _was_preempted_before(
    history: VllmRun, waiting: VllmRequestHistory, new: VllmRequestHistory
) -> bool:
    return history.config["order"] == "fcfs" and new.arrival >= preempted_after(waiting)


def _one_of_them_runs(history: VllmRun, step: Step, goes_before: GoesBefore) -> bool:
    pairs = _pairs(history, goes_before)
    return any(step.scheduled.keys() & {waiting.id, new.id} for waiting, new in pairs)


def _pairs(
    history: VllmRun, goes_before: GoesBefore
) -> Iterator[tuple[VllmRequestHistory, VllmRequestHistory]]:
    """Yield pairs: a request that waits after a preemption, and an unstarted request that must not
    start before it. Leave out waiting requests that are aborted, can never run, or are still being
    computed."""
    if loads.are_made(history.config):
        return
    unstarted = history.unstarted()
    preempted = [request for request in unstarted if request.preemptions]
    if not preempted:
        return
    flights = state_of(history).flights
    new = [request for request in unstarted if not request.max_computed]
    for waiting in preempted:
        excused = waiting.never_runnable or waiting.id in history.aborts_inside
        if not excused and not any(waiting.id in flight for flight in flights):
            yield from ((waiting, other) for other in new if goes_before(history, waiting, other))
