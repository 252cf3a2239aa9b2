"""The decision of nano-vLLM's scheduler in a step, as far as a client can tell."""

from collections.abc import Iterable

from ....model.observation import Step
from ...history.per_step_cache import once
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory

WHOLE_PROMPTS = "documented"  # the revision that always computes whole prompts


@once
def ran_before(history: RunHistory) -> list[RequestHistory]:
    """Return the unfinished sequences that ran after the previous step, in queue order."""
    names = (history.last.running or ()) if history.last is not None else ()
    return [history.live[name] for name in names if name in history.live]


@once
def waited_before(history: RunHistory) -> list[RequestHistory]:
    """Return the requests that waited, in queue order, then those that have arrived since."""
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
    """Return the requests that lost their blocks in this step, in the order in which they ran."""
    gone = set(step.preempted or ())
    return [request for request in ran_before(history) if request.id in gone]


@once
def kept(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Return the requests that ran and were not preempted, in queue order."""
    gone = set(step.preempted or ())
    return [request for request in ran_before(history) if request.id not in gone]


@once
def prefilled(history: RunHistory, step: Step) -> list[RequestHistory]:
    """Return the scheduled sequences that had waited, in scheduling order."""
    running = {request.id for request in ran_before(history)}
    return [
        history.live[name]
        for name in step.scheduled
        if name in history.live and name not in running
    ]


def behind(history: RunHistory, step: Step, request: RequestHistory) -> int | None:
    """Return how many known tokens a scheduled sequence still had to compute before this step;
    cached ones do not count. Return None if the number is unknown."""
    hit = 0 if request.started else history.hit_now(step, request)
    return None if hit is None else request.num_tokens - request.computed - hit


def completes(history: RunHistory, step: Step, request: RequestHistory) -> bool:
    return step.scheduled[request.id] == behind(history, step, request)


def free_before(history: RunHistory) -> int | None:
    """Return how many blocks were free at the decision, or None if an abort has changed this number
    since."""
    if history.last is None:
        return int(history.config["num_blocks"])
    return None if history.aborts_to_report else history.last.free_blocks


def least_free_before(history: RunHistory) -> int:
    """Return the least number of blocks that can have been free at the decision. An abort in the
    meantime can only add free blocks."""
    if history.last is None:
        return int(history.config["num_blocks"])
    return history.last.free_blocks or 0


def names(requests: Iterable[RequestHistory]) -> str:
    return ", ".join(request.id for request in requests)
