"""Requests by priority: the most important ones start first, and are preempted last.

Source: target protocol, "Priorities". A lower number is more important.
"""

from ...model.observation import Step
from ..vllm.history.request_history import VllmRequestHistory
from ..vllm.history.run import VllmRun
from . import loads


def starts_before_a_more_important_one(history: VllmRun, step: Step) -> str | None:
    """Check that no request starts while a more important one has never been scheduled
    (GEN-R21)."""
    new, waiting = _unstarted(history, step)
    first = min(waiting, key=lambda request: request.priority, default=None)
    for request in new:
        if first is not None and first.priority < request.priority:
            return (
                f"{request.id} with priority {request.priority} starts, but {first.id} with "
                f"priority {first.priority} has not started"
            )
    return None


def some_start_some_wait(history: VllmRun, step: Step) -> bool:
    new, waiting = _unstarted(history, step)
    return bool(new and waiting)


def _unstarted(
    history: VllmRun, step: Step
) -> tuple[list[VllmRequestHistory], list[VllmRequestHistory]]:
    """Return the requests that start in this step, and those that are still waiting to start."""
    new: list[VllmRequestHistory] = []
    waiting: list[VllmRequestHistory] = []
    if not history.config.get("order_by_priority"):
        return new, waiting
    for request in history.live.values():
        if request.max_computed or request.emitted or request.never_runnable:
            continue
        passed = request.id in history.aborts_inside or loads.may_be_passed(history, step, request)
        if step.scheduled.get(request.id):
            new.append(request)
        elif not passed:
            waiting.append(request)
    return new, waiting


def preempts_a_more_important_one(history: VllmRun, step: Step) -> str | None:
    """Check that no request is preempted in a step that computes a less important one (GEN-R22)."""
    for name in step.preempted or ():
        victim = history.live.get(name)
        for other in _computed(history, step):
            if victim is not None and other.priority > victim.priority:
                return (
                    f"{name} with priority {victim.priority} is preempted, but {other.id} with "
                    f"priority {other.priority} is computed"
                )
    return None


def one_is_preempted_beside_others(history: VllmRun, step: Step) -> bool:
    return bool(step.preempted) and bool(_computed(history, step))


def _computed(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    if not history.config.get("order_by_priority"):
        return []
    names = [name for name, tokens in step.scheduled.items() if tokens]
    return [history.live[name] for name in names if name in history.live]
