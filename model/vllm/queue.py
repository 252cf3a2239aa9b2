"""A step half decided, the order of the waiting queue, and which request is preempted first.

Source: chunked-prefill chapter, "When the cache, not the budget, runs out"; cheat-sheet, "Knobs".
"""

from ..members import Record
from ..pool import Pool
from .config import VllmConfig
from .encoder import EncoderPlan
from .state import Flight, Sequence

NO_ENCODER = EncoderPlan()


class Plan(Record, frozen=True):
    """A step half decided: what is left of the budget (tokens), and what runs so far.

    `scheduled` are the tokens of each request, in the order of their scheduling; `in_flight` what
    was decided before and is computed still; `parked` requests hold blocks and do not run.
    """

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    budget: int
    scheduled: dict[str, int]
    preempted: tuple[str, ...] = ()
    in_flight: tuple[Flight, ...] = ()
    parked: tuple[Sequence, ...] = ()
    leaving: tuple[Sequence, ...] = ()
    encoder: EncoderPlan = NO_ENCODER

    @property
    def holders(self) -> tuple[Sequence, ...]:
        """The requests that may hold blocks."""
        return (*self.running, *self.parked, *self.leaving)


def importance(sequence: Sequence) -> tuple[int, int]:
    """Lower comes first: the priority, then the earlier arrival."""
    return sequence.priority, sequence.arrival


def enqueued(
    config: VllmConfig, waiting: tuple[Sequence, ...], newcomer: Sequence
) -> tuple[Sequence, ...]:
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
    front = sum(sequence.aside for sequence in waiting)
    return (*waiting[:front], preempted, *waiting[front:])


def set_aside(waiting: tuple[Sequence, ...], sequence: Sequence) -> tuple[Sequence, ...]:
    """The queue in which a request waits for a reason of its own, and others may go (V1-R10)."""
    return tuple(
        [sequence._replace(aside=True) if other is sequence else other for other in waiting]
    )


def parked(
    config: VllmConfig, parked: tuple[Sequence, ...], sequence: Sequence
) -> tuple[Sequence, ...]:
    """The requests that hold blocks and wait, with one more, in the order in which they go."""
    if config.policy == "priority":
        return tuple(sorted((*parked, sequence), key=importance))
    return (*parked, sequence)


def victim(config: VllmConfig, running: tuple[Sequence, ...]) -> Sequence:
    """A request that gives its blocks up: the one admitted last (V1CP-R13), or the least important
    (V1CP-R14)."""
    if config.policy == "priority":
        return max(running, key=importance)
    return running[-1]
