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
    """The queue with a preempted request: in front (V1CP-R17), behind those that were set aside,
    except that a queue by priority knows no front: there it stands where its priority and its
    arrival put it."""
    if config.policy == "priority":
        return enqueued(config, waiting, preempted)
    front = sum(one.aside for one in waiting)
    return (*waiting[:front], preempted, *waiting[front:])


def set_aside(waiting: tuple[Sequence, ...], one: Sequence) -> tuple[Sequence, ...]:
    """The queue in which a request waits for a reason of its own, and others may go (V1-R10)."""
    return tuple([one._replace(aside=True) if other is one else other for other in waiting])


def parked(config: VllmConfig, parked: tuple[Sequence, ...], one: Sequence) -> tuple[Sequence, ...]:
    """The requests that hold blocks and wait, with one more, in the order in which they go."""
    if config.policy == "priority":
        return tuple(sorted((*parked, one), key=importance))
    return (*parked, one)


def victim(config: VllmConfig, running: tuple[Sequence, ...]) -> Sequence:
    """A request that gives its blocks up: the one admitted last (V1CP-R13), or the least important
    (V1CP-R14)."""
    if config.policy == "priority":
        return max(running, key=importance)
    return running[-1]
