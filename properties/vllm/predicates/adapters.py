"""LoRA adapters: a step uses a limited number of them, and a request without an adapter slot does
not delay others.

Source: release 0.33.0: LoRAConfig.max_loras, Scheduler.schedule.
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history.partitions import adapters_are_limited
from ..history.run import VllmRun
from .decision import lacks_adapter_slot, may_be_admitted, waited_before
from .queues import needless_wait


def too_many_adapters(history: VllmRun, step: Step) -> str | None:
    """A step computes requests with at most max_loras adapters (V1-R62)."""
    slots = history.config["max_loras"]
    computing = [history.live[name] for name in step.scheduled if name in history.live]
    used = {request.partition[0] for request in computing} - {None}
    if len(used) <= slots:
        return None
    return f"the step uses {len(used)} adapters ({', '.join(sorted(map(str, used)))}) > {slots}"


def one_lacks_a_slot(history: VllmRun, step: Step) -> bool:
    return any(lacks_adapter_slot(history, step, request) for request in waited_before(history))


def held_up(history: VllmRun, step: Step) -> str | None:
    """Requests without a slot do not delay a request behind them for which there is room
    (V1-R63)."""
    if not one_lacks_a_slot(history, step):
        return None
    first, line = next(may_be_admitted(history, step), None), waited_before(history)
    if first is None or not any(
        lacks_adapter_slot(history, step, request) for request in line[: line.index(first)]
    ):
        return None
    return needless_wait(history, step)


def passes(history: VllmRun, step: Step) -> bool:
    line = [lacks_adapter_slot(history, step, request) for request in waited_before(history)]
    return True in line and False in line[line.index(True) :]


PREDICATES = {
    "V1-R62": Predicate(too_many_adapters, one_lacks_a_slot, only_with=adapters_are_limited),
    "V1-R63": Predicate(held_up, passes, only_with=adapters_are_limited),
}
