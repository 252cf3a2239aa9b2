"""Sessions between two turns: when they are scheduled, what they keep, and where they wait.

Source: release 0.33.0: Scheduler._handle_stopped_request, Scheduler._update_request_as_session.
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history import sessions
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import admitted, kept, order_is_known, since, waited_before
from .queues import needless_wait


def runs_without_input(history: VllmRun, step: Step) -> str | None:
    """No session is scheduled before its next input has arrived (V1-R44)."""
    for request in sessions.awaiting(history.live):
        if request.id in step.scheduled:
            return f"{request.id} scheduled {request.blocked} steps before its next input"
    return None


def one_awaits(history: VllmRun, step: Step) -> bool:
    return bool(sessions.awaiting(history.live))


def continues_wrongly(history: VllmRun, step: Step) -> str | None:
    """Between two turns, a session keeps what it has computed, and continues from there (V1-R45).

    It keeps all tokens except the last one of the turn that ended. A session that has given its
    blocks back (V1-R48) begins again.
    """
    before = (history.last.blocks or {}) if history.last is not None else {}
    for name in step.parked or () if sessions.are_held(history.config) else ():
        request = history.live.get(name)
        if request and not (request.between_turns or sessions.ends_turn(step, request)):
            return f"{name} waits and holds blocks, but is not between two turns"
    for request in ending_turns(history, step):
        last = request.prompt + request.emitted + (step.emitted or {})[request.id] - 1
        shown = (step.computed or {}).get(request.id, last)
        if shown != last:
            return f"{request.id} ends a turn with {shown} computed tokens; it must keep {last}"
    for request in between_turns(history, step):
        computed = (step.computed or {}).get(request.id)
        if computed is not None or step.computed is not None:
            start = (computed or 0) - step.scheduled.get(request.id, 0)
            if request.tokens_loading and start != request.tokens_loading:
                return (
                    f"{request.id} continues from token {start}, but had computed "
                    f"{request.tokens_loading} tokens when its turn ended"
                )
        held, now = before.get(request.id, ()), (step.blocks or {}).get(request.id, ())
        if step.blocks is not None and now[: len(held)] != held:
            return f"{request.id} held blocks {[*held]} between two turns, and now {[*now]}"
    return None


def one_is_between_turns(history: VllmRun, step: Step) -> bool:
    return bool(between_turns(history, step))


def between_turns(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the sessions that were between two turns before the step and still are after it."""
    gone = {*(step.preempted or ()), *(step.finished or ()), *history.aborts_inside}
    requests = history.live.values()
    return [request for request in requests if request.between_turns and request.id not in gone]


def slot_given_away(history: VllmRun, step: Step) -> str | None:
    """A session that waits for its next input keeps its slot (V1-R46)."""
    late = sessions.awaiting(history.live)
    run = len(kept(history, step)) + len(admitted(history, step))
    most = history.config["max_num_seqs"]
    if not late or not admitted(history, step) or run + len(late) <= most:
        return None
    return (
        f"{admitted(history, step)[-1].id} admitted: {run} requests run and {len(late)} sessions "
        f"wait for their next input, but max_num_seqs is {most}"
    )


def slots_are_taken(history: VllmRun, step: Step) -> bool:
    late = len(sessions.awaiting(history.live))
    taken = len(kept(history, step)) + len(admitted(history, step)) + late
    return bool(late) and taken >= history.config["max_num_seqs"] and taken < len(history.live)


def out_of_place(history: VllmRun, step: Step) -> str | None:
    """A waiting session keeps its place; when its turn ends, it takes the place that the revision
    prescribes (V1-R47)."""
    expected = expected_order(history, step)
    placed = {*expected}
    shown = [name for name in step.waiting or () if name in placed]
    if shown == expected:
        return None
    return f"{', '.join(shown)} wait in this order; expected {', '.join(expected)}"


def expected_order(history: VllmRun, step: Step) -> list[str]:
    """Return the order in which requests must wait after the step: those that waited before, and
    the sessions whose turn ends in it. Return an empty list if the order is unknown.

    Before 0.31, a request that came with a grammar is left out, since no document says whether it
    keeps its place.
    """
    if not sessions.are_held(history.config) or not order_is_known(history):
        return []
    ended = ending_turns(history, step)
    waits = {*(step.waiting or ())}.difference(request.id for request in ended)
    from_0_31 = history.revision in since("0.31")
    line = [
        request
        for request in waited_before(history)
        if request.id in waits and (from_0_31 or not _came_with_grammar(request))
    ]
    lost = step.preempted or ()  # requests that lost their blocks go behind those that have some
    first = {
        request.id
        for request in line
        if request.between_turns
        and (request.tokens_loading if from_0_31 else request.aside)
        and request.id not in lost
    }
    ahead = [r.id for r in ended if (r.id not in lost if from_0_31 else has_to_wait(r))]
    behind = [r.id for r in ended if r.id not in ahead]
    front = [request.id for request in line if request.id in first]
    return front + ahead + [r.id for r in line if r.id not in first] + behind


def _came_with_grammar(request: VllmRequestHistory) -> bool:
    return request.arrived_blocked and not (request.between_turns or request.preemptions)


def has_to_wait(request: VllmRequestHistory) -> bool:
    return request.turns[0].delay is not None


def ending_turns(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    requests = [history.live[name] for name in step.emitted or () if name in history.live]
    stay = [request for request in requests if request.id not in history.aborts_inside]
    return [request for request in stay if sessions.ends_turn(step, request)]


def turn_ends_beside_others(history: VllmRun, step: Step) -> bool:
    return bool(ending_turns(history, step)) and len(expected_order(history, step)) > 1


def wait_for_each_other(history: VllmRun, step: Step) -> str | None:
    """If nothing runs and no session waits for input, waiting sessions give their blocks back until
    the first in line can run, and only then (V1-R48)."""
    gone = [history.live[name] for name in step.preempted or () if name in history.live]
    lost = [request.id for request in gone if request.between_turns]
    stuck = not (kept(history, step) or sessions.awaiting(history.live))
    if lost and not stuck:
        return f"{', '.join(lost)} gave blocks back, although another request can continue"
    holding = [r.id for r in history.live.values() if r.between_turns and r.tokens_loading]
    if lost or not stuck or not holding or step.scheduled or history.aborts_inside:
        return None
    if step.preempted and (step.waiting or holding)[0] in holding:
        return None  # a session goes first in the next step
    if needless_wait(history, step):
        return None  # V1-R07: the first in line needs no more blocks
    return f"nothing runs, and waiting sessions ({', '.join(holding)}) keep their blocks"


def one_gives_back(history: VllmRun, step: Step) -> bool:
    live = history.live
    return any(live[name].between_turns for name in step.preempted or () if name in live)


PREDICATES = {
    "V1-R44": Predicate(runs_without_input, one_awaits, only_with=sessions.are_held),
    "V1-R45": Predicate(continues_wrongly, one_is_between_turns, only_with=sessions.are_held),
    "V1-R46": Predicate(slot_given_away, slots_are_taken, only_with=sessions.are_held),
    "V1-R47": Predicate(out_of_place, turn_ends_beside_others, only_with=sessions.are_held),
    "V1-R48": Predicate(wait_for_each_other, one_gives_back, only_with=sessions.are_held),
}
