"""The main loop of the simulator: its end, its clock, and requests that another instance decodes.

Source: continuous-batching page, "Where the scheduler stops" and "What the scheduler hands back".
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ...vllm.history.run import VllmRun, state_of
from ...vllm.predicates.decision import names
from ..history import passing, time_of_idle
from .budget import PAGE
from .queues import left_out


def wrong_end(history: VllmRun, step: Step) -> str | None:
    """Check that the simulation ends exactly when no batch can be built and no request is still to
    come (LSS-R20). HEAD also waits for requests that can never be scheduled."""
    live = history.live.values()
    waits = any(request.blocked for request in live) if history.revision == PAGE else bool(live)
    goes_on = bool(waits or step.scheduled or state_of(history).flights or left_out(history, step))
    if step.over and goes_on:
        return f"the simulation ends before {names(history.live.values()) or 'a batch'} has ended"
    if not step.over and not goes_on:
        return (
            "nothing is scheduled and no request is still to come, but the simulation does not end"
        )
    return None


def everything_has_ended(history: VllmRun, step: Step) -> bool:
    return bool(history.requests) and not (history.live or state_of(history).flights)


def clock_stands(history: VllmRun, step: Step) -> str | None:
    """If the only sessions left are waiting for a tool, check that the one whose tool finishes
    first arrives (LSS-R21)."""
    jump = time_of_idle(history, step)
    due = [request for request in history.live.values() if request.blocked == jump]
    late = [request for request in due if jump and request.id in (step.deferred or ())]
    return (
        (f"only tools run, but {names(late)}, whose tool finishes first, does not arrive")
        if late
        else None
    )


def clock_must_jump(history: VllmRun, step: Step) -> bool:
    return time_of_idle(history, step) > 1


def leaves_the_router(history: VllmRun, step: Step) -> str | None:
    """Check that a session stays in the router until its tool has finished, and no longer
    (LSS-R37)."""
    shown = step.deferred or ()
    passed, jump = passing(history, step), time_of_idle(history, step)
    for request in history.live.values():
        if request.id in history.aborts_inside:
            continue
        left = request.blocked - passed
        if left > 0 and request.id not in shown:
            return f"{request.id} arrives {left} steps before its tool finishes"
        # If the first one due does not arrive, the clock stands still (LSS-R21).
        if left <= 0 and request.id in shown and request.blocked != jump:
            return f"{request.id} does not arrive, although its tool has finished"
    return None


def tool_finishes(history: VllmRun, step: Step) -> bool:
    passed = passing(history, step)
    return any(0 < request.blocked <= passed for request in history.live.values())


def not_handed_over(history: VllmRun, step: Step) -> str | None:
    """Check that another instance gets exactly the requests that finish on this one (LSS-R26)."""
    done = {name for name, reason in (step.finished or {}).items() if reason != "aborted"}
    handed = step.handed_over or ()
    if sorted(handed) == sorted(done):
        return None
    return (
        f"{', '.join(sorted(done)) or 'no request'} finished, but the decoding instance got "
        f"{', '.join(handed) or 'none'}"
    )


def one_is_handed_over(history: VllmRun, step: Step) -> bool:
    return bool(step.finished)


PREDICATES = {
    "LSS-R20": Predicate(wrong_end, everything_has_ended),
    "LSS-R21": Predicate(clock_stands, clock_must_jump),
    "LSS-R37": Predicate(leaves_the_router, tool_finishes),
    "LSS-R26": Predicate(not_handed_over, one_is_handed_over),
}
