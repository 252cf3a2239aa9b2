"""At HEAD: running requests come first, and the last of them is preempted.

Source: serving/core/scheduler.py at HEAD, which follows vLLM V1. Rules that it shares with vLLM's
documents use vLLM's predicates.
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ...vllm.history.run import VllmRun
from ...vllm.predicates.decision import admitted, kept, names, preempted, ran_before
from ...vllm.predicates.preemption import needless_preemption, victim_keeps_something
from ...vllm.predicates.queues import admitted_after_preemption
from .budget import waited


def not_as_vllm(history: VllmRun, step: Step) -> str | None:
    """Running requests come first, in their order. If too few blocks are free, the last of them is
    preempted and gives back all its blocks, and no request is admitted in that step. None is
    preempted for a waiting request (LSS-R30)."""
    return (
        _out_of_order(history, step)
        or _not_the_tail(history, step)
        or victim_keeps_something(history, step)
        or admitted_after_preemption(history, step)
        or needless_preemption(history, step)
    )


def preempts_or_admits(history: VllmRun, step: Step) -> bool:
    return bool(step.preempted) or bool(admitted(history, step) and kept(history, step))


def _out_of_order(history: VllmRun, step: Step) -> str | None:
    old = [request.id for request in ran_before(history) if request.id in step.scheduled]
    order = [name for name in step.scheduled if name in history.live]
    if order[: len(old)] == old:
        return None
    return f"scheduled in the order {', '.join(order)}; {', '.join(old)} were running"


def _not_the_tail(history: VllmRun, step: Step) -> str | None:
    gone, before = preempted(history, step), ran_before(history)
    tail = before[len(before) - len(gone) :]
    if {request.id for request in tail} == {request.id for request in gone}:
        return None
    return f"{names(gone)} preempted instead of {names(tail)}; {names(before)} ran, in this order"


def not_by_arrival(history: VllmRun, step: Step) -> str | None:
    """Waiting requests are listed and admitted by arrival (LSS-R34)."""
    listed = [history.live[name] for name in step.waiting or () if name in history.live]
    by_arrival = sorted(listed, key=lambda request: request.arrival)
    if listed != by_arrival:
        return f"{names(listed)} wait in this order, but came in the order {names(by_arrival)}"
    new, waiting = admitted(history, step), waited(history, step)
    arrivals = [request.arrival for request in new]
    if arrivals != sorted(arrivals):
        return f"{names(new)} are admitted in this order, which is not that of their arrival"
    if new and waiting and waiting[0].arrival < arrivals[-1]:
        return f"{new[-1].id} is admitted, but {waiting[0].id} came before it and waits"
    return None


def two_wait_or_one_joins(history: VllmRun, step: Step) -> bool:
    waiting = len(step.waiting or ())
    return waiting > 1 or (waiting > 0 and bool(admitted(history, step)))


PREDICATES = {
    "LSS-R30": Predicate(not_as_vllm, preempts_or_admits),
    "LSS-R34": Predicate(not_by_arrival, two_wait_or_one_joins),
}
