"""Requests that wait for their grammar: they do not run, and hold up no other.

Source: release 0.33.0: Scheduler._handle_blocked_waiting_request.
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history import blocked
from ..history.run import VllmRun
from .decision import may_go, names, waited_before
from .queues import needless_wait


def runs_blocked(history: VllmRun, step: Step) -> str | None:
    """No request is scheduled before its grammar is compiled (V1-R41)."""
    if not history.config.get(blocked.KEY):
        return None
    early = [request for request in history.live.values() if request.blocked]
    early = [request for request in early if request.id in step.scheduled]
    if not early:
        return None
    return f"{names(early)} scheduled, {early[0].blocked} steps before its grammar is compiled"


def one_is_blocked(history: VllmRun, step: Step) -> bool:
    """A request waits for its grammar."""
    if not history.config.get(blocked.KEY):
        return False
    return any(request.blocked for request in history.live.values())


def held_up(history: VllmRun, step: Step) -> str | None:
    """The first request whose grammar is compiled is admitted if there is room for it, although
    others in front of it are blocked (V1-R42)."""
    return needless_wait(history, step) if _is_passed(history, step) else None


def passes(history: VllmRun, step: Step) -> bool:
    """A request that may run is behind one that waits for its grammar."""
    if not one_is_blocked(history, step):
        return False
    line = [request.blocked > 0 for request in waited_before(history)]
    return True in line and False in line[line.index(True) :]


def _is_passed(history: VllmRun, step: Step) -> bool:
    """Return whether a blocked request is in front of the first one that could go."""
    if not one_is_blocked(history, step):
        return False
    first = next(may_go(history, step), None)
    if first is None:
        return False
    line = waited_before(history)
    return any(request.blocked for request in line[: line.index(first)])


PREDICATES = {
    "V1-R41": Predicate(runs_blocked, one_is_blocked),
    "V1-R42": Predicate(held_up, passes),
}
