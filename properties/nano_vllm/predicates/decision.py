"""The decision of nano-vLLM's scheduler in a step, as far as its client can tell."""

from collections.abc import Iterable

from ....model.observation import Step
from ...history.per_step_cache import once
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory

WHOLE_PROMPTS = "documented"  # the revision that computes no prompt in part


@once
def ran_before(history: RunHistory) -> list[RequestHistory]:
    """Unfinished sequences that ran after the step before, in the order of that queue."""
    names = (history.last.running or ()) if history.last is not None else ()
    return [history.live[name] for name in names if name in history.live]


@once
def waited_before(history: RunHistory) -> list[RequestHistory]:
    """Requests that waited after the step before, in the order of that queue, then requests that
    have arrived since."""
    queued = (history.last.waiting or ()) if history.last is not None else ()
    known = [history.live[name] for name in queued if name in history.live]
    running = {request.id for request in ran_before(history)}
    queued_ids = {request.id for request in known}
    return known + [
        request
        for request in history.live.values()
        if request.id not in running and request.id not in queued_ids
    ]


@once
def preempted(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Requests that lost their blocks in this step, in the order in which they ran."""
    gone = set(step.preempted or ())
    return [request for request in ran_before(history) if request.id in gone]


@once
def kept(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Requests that ran and were not preempted, in the order of the queue."""
    gone = set(step.preempted or ())
    return [request for request in ran_before(history) if request.id not in gone]


@once
def prefilled(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Scheduled sequences that had waited, in scheduling order."""
    running = {request.id for request in ran_before(history)}
    return [
        history.live[name]
        for name in step.scheduled
        if name in history.live and name not in running
    ]


def behind(history: RunHistory, step: Step, request: RequestHistory) -> int | None:
    """Known tokens of a scheduled sequence that were not computed, nor cached, before this step.
    None where it is not known."""
    hit = 0 if request.started else history.hit_now(step, request)
    return None if hit is None else request.num_tokens - request.computed - hit


def completes(history: RunHistory, step: Step, request: RequestHistory) -> bool:
    return step.scheduled[request.id] == behind(history, step, request)


def free_before(history: RunHistory) -> int | None:
    """Blocks free when the step was decided; None where an abort has changed that since."""
    if history.last is None:
        return int(history.config["num_blocks"])
    return None if history.aborts_to_report else history.last.free_blocks


def names(requests: Iterable[RequestHistory]) -> str:
    return ", ".join(request.id for request in requests)
