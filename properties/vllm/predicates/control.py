"""Control events: resets of the prefix cache, pauses, and sleep.

Source: release 0.33.0: Scheduler.reset_prefix_cache, PauseState, EngineCore.sleep.
"""

from ....model.observation import Step
from ...history.content import in_common
from ...history.run_history import RESETS, RESETS_OF_RUNNING, ControlEvent
from ...rules.common import first_hits
from ...rules.predicate import Predicate
from ..history import in_flight
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, state_of
from .decision import names, preempted, ran_before, waited_before, was_set_aside


def reset_wrongly(history: VllmRun, step: Step) -> str | None:
    """A reset succeeds if and only if no request holds a block, or the event is
    reset_running_requests or sleep (V1-R35)."""
    for event in _resets(history):
        holding = () if event.kind in RESETS_OF_RUNNING else event.holding
        if holding is None or event.done == (not holding):
            continue
        if event.done:
            return f"{event.kind} succeeded although {', '.join(holding)} hold blocks"
        return f"{event.kind} failed, although no request would have held a block"
    return None


def is_reset(history: VllmRun, step: Step) -> bool:
    return bool(_resets(history))


def _resets(history: VllmRun) -> list[ControlEvent]:
    return [event for event in history.events if event.kind in RESETS]


def hit_from_before_reset(history: VllmRun, step: Step) -> str | None:
    """A hit covers only tokens computed since the last reset (V1-R36)."""
    for request, hit in _starting(history, step):
        known = max(_since(history, step, request, other) for other in history.requests.values())
        if hit > known:
            return (
                f"{request.id} takes {hit} tokens from the cache, of which only {known} were "
                "computed after it was reset"
            )
    return None


def _since(
    history: VllmRun, step: Step, request: VllmRequestHistory, other: VllmRequestHistory
) -> int:
    """Return how many leading tokens of `request` the `other` request has computed since the
    reset."""
    computed = other.since_reset
    if other is not request and other.id in step.scheduled and other.ended is None:
        hit = 0 if other.started else history.hit_now(step, other)
        begins = other.num_tokens if hit is None else other.computed + hit
        computed = max(computed, begins + step.scheduled[other.id])
    return min(in_common(request, other), computed)


def could_hit_what_was_reset(history: VllmRun, step: Step) -> bool:
    """Return whether a request starts with tokens computed before the reset, but not since."""
    for request, _ in _starting(history, step):
        kin = history.requests.values()
        ever = max(min(in_common(request, other), other.max_computed) for other in kin)
        since = max(_since(history, step, request, other) for other in kin)
        if ever > since:
            return True
    return False


def _starting(history: VllmRun, step: Step) -> list[tuple[VllmRequestHistory, int]]:
    return first_hits(history, step) if state_of(history).was_reset else []


def lost_their_place(history: VllmRun, step: Step) -> str | None:
    """After reset_running_requests or sleep, the requests that were running go first, in the same
    order as before (V1-R37)."""
    ran = [request.id for request in _made_wait(history)]
    ran = [name for name in ran if name not in (step.finished or {})]
    line = [*(step.running or ()), *(step.waiting or ())]
    front = [name for name in line if name in history.live][: len(ran)]
    if front == ran:
        return None
    return (
        f"{', '.join(ran)} ran before the reset, but the requests in front are "
        f"{', '.join(front) or 'none'}"
    )


def several_were_made_to_wait(history: VllmRun, step: Step) -> bool:
    return len(_made_wait(history)) > 1


def _made_wait(history: VllmRun) -> list[VllmRequestHistory]:
    """Return the requests that ran before the reset, in order of arrival.

    Return an empty list if other requests may be in front of them: under the priority policy, or if
    a request has encoder inputs or was set aside. With several steps in flight, a preempted request
    may have been set aside while a step still computed it.
    """
    if history.config["policy"] == "priority":
        return []
    if any(request.inputs or was_set_aside(history, request) for request in history.live.values()):
        return []
    event = next((event for event in history.events if event.kind in RESETS_OF_RUNNING), None)
    ran = (event.running or ()) if event is not None else ()
    others = (request for request in history.live.values() if request.id not in ran)
    if in_flight.depth(history.config) > 1 and any(request.preemptions for request in others):
        return []
    staying = history.live.keys() - history.aborts_inside
    return [history.live[name] for name in ran if name in staying]


def works_while_paused(history: VllmRun, step: Step) -> str | None:
    """While everything is paused, or the engine sleeps, nothing is scheduled and nothing preempted
    (V1-R38)."""
    if history.pause != "pause_all" or not (step.scheduled or step.preempted):
        return None
    if step.preempted:
        return f"{names(preempted(history, step))} preempted while the scheduler is paused"
    return f"{', '.join(step.scheduled)} scheduled while the scheduler is paused"


def all_is_paused(history: VllmRun, step: Step) -> bool:
    return history.pause == "pause_all" and bool(history.live)


def admits_while_paused(history: VllmRun, step: Step) -> str | None:
    """While new requests are paused, only requests that were running are scheduled (V1-R39)."""
    if history.pause != "pause_new":
        return None
    ran = {request.id for request in ran_before(history)}
    new = [name for name in step.scheduled if name in history.live and name not in ran]
    return f"{', '.join(new)} admitted while new requests are paused" if new else None


def newcomers_are_paused(history: VllmRun, step: Step) -> bool:
    return history.pause == "pause_new" and bool(waited_before(history))


PREDICATES = {
    "V1-R35": Predicate(reset_wrongly, is_reset, reads=()),
    "V1-R36": Predicate(hit_from_before_reset, could_hit_what_was_reset),
    "V1-R37": Predicate(lost_their_place, several_were_made_to_wait),
    "V1-R38": Predicate(works_while_paused, all_is_paused, reads=("preempted", "scheduled")),
    "V1-R39": Predicate(admits_while_paused, newcomers_are_paused),
}
