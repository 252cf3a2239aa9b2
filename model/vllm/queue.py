"""The order of the waiting queue, and which request is preempted first.

Source: chunked-prefill chapter, "When the cache, not the budget, runs out"; cheat-sheet, "Knobs".
"""

from .config import VllmConfig
from .state import Sequence


def importance(one: Sequence) -> tuple[int, int]:
    """Lower comes first: the priority, then the earlier arrival."""
    return one.priority, one.arrival


def enqueued(
    config: VllmConfig, waiting: tuple[Sequence, ...], newcomer: Sequence
) -> tuple[Sequence, ...]:
    """The queue with a request that has just arrived."""
    if config.policy == "priority":
        return tuple(sorted((*waiting, newcomer), key=importance))
    return (*waiting, newcomer)


def put_back(
    config: VllmConfig, waiting: tuple[Sequence, ...], preempted: Sequence
) -> tuple[Sequence, ...]:
    """The queue with a preempted request: in front (V1CP-R17), except that a queue by priority
    knows no front: there it stands where its priority and its arrival put it."""
    if config.policy == "priority":
        return enqueued(config, waiting, preempted)
    return (preempted, *waiting)


def victim(config: VllmConfig, running: tuple[Sequence, ...]) -> Sequence:
    """A request that gives its blocks up: the one admitted last (V1CP-R13), or the least important
    (V1CP-R14)."""
    if config.policy == "priority":
        return max(running, key=importance)
    return running[-1]
