"""The places of requests: the waiting queue, the running queue, and requests that come back.

Source: deck, chapters 3 "Sequences and Queues", 6 "The Decode Path" and 8 "Preemption".
"""

from ....model.observation import Step
from ...history.run_history import RunHistory
from ...rules.predicate import Predicate
from .decision import (
    WHOLE_PROMPTS,
    completes,
    kept,
    preempted,
    prefilled,
    ran_before,
    waited_before,
)


def victim_not_in_front(history: RunHistory, step: Step) -> str | None:
    """Preempted sequences wait in front of all others, in the order in which they ran (NAN-R22)."""
    gone = [
        request.id
        for request in preempted(history, step)
        if request.id not in history.aborts_inside
    ]
    waiting = list(step.waiting or ())
    if waiting[: len(gone)] == gone:
        return None
    return f"{', '.join(gone)} preempted; the queue is {', '.join(waiting)}"


def preempts_while_others_wait(history: RunHistory, step: Step) -> bool:
    return bool(preempted(history, step)) and len(step.waiting or ()) > len(step.preempted or ())


def newcomer_not_at_the_back(history: RunHistory, step: Step) -> str | None:
    """A waiting request keeps its place behind earlier ones (NAN-R06)."""
    expected = [request.id for request in waited_before(history)]
    seen = [name for name in step.waiting or () if name in set(expected)]
    expected = [name for name in expected if name in set(seen)]
    if seen == expected:
        return None
    return f"the queue is {', '.join(seen)}; they arrived as {', '.join(expected)}"


def someone_arrives(history: RunHistory, step: Step) -> bool:
    queued = (history.last.waiting or ()) if history.last is not None else ()
    return bool(queued) and len(waited_before(history)) > len(queued)


def running_out_of_order(history: RunHistory, step: Step) -> str | None:
    """Running requests keep their order, newcomers join at the end, and the step schedules requests
    in this order (NAN-R15)."""
    new = [request for request in prefilled(history, step) if completes(history, step, request)]
    gone = {*(step.finished or {}), *history.aborts_inside}
    expected = [request.id for request in kept(history, step) + new if request.id not in gone]
    if list(step.running or ()) != expected:
        return f"{', '.join(step.running or ())} run; expected {', '.join(expected)}"
    order = [request.id for request in ran_before(history) if request.id in step.scheduled]
    decoded = [name for name in step.scheduled if name in set(order)]
    if decoded != order:
        return f"scheduled in the order {', '.join(decoded)}; expected {', '.join(order)}"
    return None


def several_run(history: RunHistory, step: Step) -> bool:
    return len(step.running or ()) > 1


def waiting_holds_blocks(history: RunHistory, step: Step) -> str | None:
    """A waiting request holds no block, except the first in line while its prompt is partly
    computed (NAN-R03)."""
    for place, name in enumerate(step.waiting or ()):
        held = (step.blocks or {}).get(name)
        in_part = place == 0 and name in (step.prefilling or ())
        if held and (history.revision == WHOLE_PROMPTS or not in_part):
            return f"{name} waits, number {place + 1} in line, and holds {len(held)} blocks"
    return None


def someone_waits_and_blocks_are_held(history: RunHistory, step: Step) -> bool:
    return bool(step.waiting) and bool(step.blocks)


PREDICATES = {
    "NAN-R22": Predicate(
        victim_not_in_front, preempts_while_others_wait, reads=("preempted", "running", "waiting")
    ),
    "NAN-R06": Predicate(newcomer_not_at_the_back, someone_arrives, reads=("running", "waiting")),
    "NAN-R15": Predicate(running_out_of_order, several_run),
    "NAN-R03": Predicate(
        waiting_holds_blocks,
        someone_waits_and_blocks_are_held,
        reads=("blocks", "prefilling", "waiting"),
    ),
}
