"""Requests that wait for their grammar: they do not run, and hold up no other request.

Source: release 0.33.0: Scheduler._handle_blocked_waiting_request.
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history import blocked, in_flight
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import admitted, kept, may_go, may_pad, order_is_known, waited_before
from .queues import needless_wait


def runs_blocked(history: VllmRun, step: Step) -> str | None:
    """No request is scheduled before its grammar is compiled (V1-R41)."""
    if not history.config.get(blocked.KEY):
        return None
    for name in step.scheduled:
        request = history.live.get(name)
        if request is not None and request.blocked:
            return f"{name} scheduled, {request.blocked} steps before its grammar is compiled"
        if request is not None and request.invalid:
            return f"{name} scheduled, although its grammar cannot be compiled"
    return None


def one_is_blocked(history: VllmRun, step: Step) -> bool:
    if not history.config.get(blocked.KEY):
        return False
    return any(request.blocked for request in history.live.values())


def held_up(history: VllmRun, step: Step) -> str | None:
    """The first request whose grammar is compiled is admitted if there is room for it, although
    others in front of it are blocked (V1-R42)."""
    return needless_wait(history, step) if _is_passed(history, step) else None


def passes(history: VllmRun, step: Step) -> bool:
    if not one_is_blocked(history, step):
        return False
    line = [request.blocked > 0 for request in waited_before(history)]
    return True in line and False in line[line.index(True) :]


def _is_passed(history: VllmRun, step: Step) -> bool:
    if not one_is_blocked(history, step):
        return False
    first = next(may_go(history, step), None)
    if first is None:
        return False
    line = waited_before(history)
    return any(request.blocked for request in line[: line.index(first)])


def outlives_its_grammar(history: VllmRun, step: Step) -> str | None:
    """A request whose grammar cannot be compiled ends with an error when its turn for admission
    comes, and not before (V1-R43)."""
    for name, reason in (step.finished or {}).items():
        request = history.live.get(name)
        if request is None or not request.invalid or name in history.aborts_inside:
            continue
        if reason != "error":
            return (
                f"{name} ends ({reason}), though its grammar cannot be compiled: it must be error"
            )
        if request.blocked:
            return f"{name} ends {request.blocked} steps before its grammar is compiled"
    request = _comes_to(history, step)
    if request is None:
        return None
    return f"{request.id} waits, although its grammar cannot be compiled: it must end with an error"


def _comes_to(history: VllmRun, step: Step) -> VllmRequestHistory | None:
    """Return the first request that must end in this step, as far as this is known."""
    if not history.config.get(blocked.KEY) or history.pause or step.preempted:
        return None
    run = len(kept(history, step)) + len(admitted(history, step))
    spent = sum(step.scheduled.values())
    full = (
        run >= history.config["max_num_seqs"] or spent >= history.config["max_num_batched_tokens"]
    )
    if full or may_pad(history) or in_flight.depth(history.config) > 1:
        return None
    line = waited_before(history) if order_is_known(history) else []
    for request in line:
        if request.id in step.scheduled or request.blocked:
            continue
        gone = request.id in (step.finished or {}) or request.id in history.aborts_inside
        if not request.invalid:
            return None
        if not gone:
            return request
    return None


def one_is_invalid(history: VllmRun, step: Step) -> bool:
    return any(request.invalid and not request.blocked for request in history.live.values())


PREDICATES = {
    "V1-R41": Predicate(runs_blocked, one_is_blocked),
    "V1-R42": Predicate(held_up, passes),
    "V1-R43": Predicate(outlives_its_grammar, one_is_invalid),
}
