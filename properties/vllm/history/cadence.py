"""Steps that hold prefills back, as far as a client can tell.

Source: release 0.33.0: SchedulerConfig.prefill_schedule_interval, its docstring, and comments of
Scheduler.schedule.
"""

from collections.abc import Mapping
from typing import Any

from ....model.observation import Step
from . import in_flight
from .request_history import VllmRequestHistory
from .run import Cadence, VllmRun, state_of

Config = Mapping[str, Any]


def interval(config: Config) -> int:
    return int(config.get("prefill_schedule_interval", 1))


def is_kept(config: Config) -> bool:
    return interval(config) > 1


def goes_on(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a running request is still in its prefill, that is, whether its last step left
    some of its known tokens uncomputed."""
    return request.id in state_of(history).cadence.prefilling


def holds(history: VllmRun) -> bool | None:
    """Return whether the coming step holds prefills back, or None if that is unknown.

    A step holds prefills back if the last prefill was less than `prefill_schedule_interval` steps
    ago, a request decodes, and the last step that could admit requests left none of them waiting.
    """
    known = state_of(history).cadence
    if not known.most or known.crowded is True or not _running(history) - known.prefilling:
        return False
    return None if not known.least or known.crowded is None else True


def may_wait(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether the prefill of a running request may be held back in the coming step."""
    return goes_on(history, request) and holds(history) is not False


def _running(history: VllmRun) -> set[str]:
    last = (history.last.running or ()) if history.last is not None else ()
    return set(last) & (history.live.keys() | history.aborts_inside)


def after(history: VllmRun, step: Step) -> Cadence:
    """Return what a client knows about the next step, once this step is decided."""
    known, ran, held = state_of(history).cadence, _running(history), holds(history)
    prefilling, carries = known.prefilling & ran - step.scheduled.keys(), {False}
    for name, tokens in step.scheduled.items():
        if (request := history.requests.get(name)) is None:
            continue
        hit = 0 if name in ran else history.hit_now(step, request)
        if hit is None:
            carries.add(True)
            continue
        left = request.num_tokens - request.computed - hit
        carries = {True} if _is_prefill(known, ran, name, left) else carries
        if left > tokens:
            prefilling |= {name}
    steps = interval(history.config) - 1
    least, most = (max(left - bool(step.scheduled), 0) for left in (known.least, known.most))
    crowded, aside = _left_waiting(history, step, ran)
    if step.preempted or held or history.pause == "pause_all":
        crowded = known.crowded
    elif held is None and crowded != known.crowded:
        crowded = None
    return Cadence(
        least if False in carries else steps,
        steps if True in carries else most,
        crowded,
        prefilling - set(step.preempted or ()),
        aside,
    )


def _is_prefill(known: Cadence, ran: set[str], name: str, left: int) -> bool:
    return name in known.prefilling if name in ran else left > 1


def _left_waiting(
    history: VllmRun, step: Step, ran: set[str]
) -> tuple[bool | None, frozenset[str]]:
    """Return two things: whether a request that could run still waits after the step (None if
    unknown), and which requests may have had to wait for tokens in flight."""
    names = history.live.keys() | history.aborts_inside
    waiting = [history.requests[name] for name in names - ran - step.scheduled.keys()]
    known = state_of(history).cadence.aside
    aside = {
        request.id
        for request in waiting
        if request.id in known or in_flight.is_still_computed(history, request)
    }
    surely = len(aside) < len(waiting)
    return (True if surely else None if waiting else False), frozenset(aside)
