"""A partly decided step, the order of the waiting queue, and the choice of the request to preempt.

Source: chunked-prefill chapter, "When the cache, not the budget, runs out"; cheat-sheet, "Knobs".
"""

from ..members import Record
from ..pool import Pool
from .config import VllmConfig
from .encoder import EncoderPlan
from .state import Flight, Sequence, State

NO_ENCODER = EncoderPlan()


class Plan(Record, frozen=True):
    """A partly decided step: the tokens left in the budget, and the queues so far.

    `scheduled` contains the tokens of each request, in scheduling order. `in_flight` contains the
    earlier decisions that are still being computed. `parked` requests have blocks but do not run.
    If the step `holds` prefills back, requests with more than one token to compute wait.
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
    holds: bool = False

    @classmethod
    def of(cls, config: VllmConfig, state: State) -> "Plan":
        return cls(
            *(state.running, state.waiting, state.pool, config.max_num_batched_tokens, {}, ()),
            *(state.in_flight, state.parked, state.leaving),
            EncoderPlan(config.encoder_budget, state.outputs) if config.encodes else NO_ENCODER,
            state.cadence is not None and state.cadence.holds,
        )

    @property
    def holders(self) -> tuple[Sequence, ...]:
        """Return the requests that may hold blocks."""
        return (*self.running, *self.parked, *self.leaving)


def importance(sequence: Sequence) -> tuple[int, int]:
    """Return the sort key of a request: its priority, then its arrival. Lower keys come first."""
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
    """Return the queue with a preempted request in front of all others, except requests that were
    set aside (V1CP-R17). Under the priority policy, its priority and arrival determine its place.
    """
    if config.policy == "priority":
        return enqueued(config, waiting, preempted)
    front = sum(sequence.aside for sequence in waiting)
    return (*waiting[:front], preempted, *waiting[front:])


def set_aside(waiting: tuple[Sequence, ...], sequence: Sequence) -> tuple[Sequence, ...]:
    """Return the queue after setting this request aside: it waits for something other than blocks,
    so other requests may overtake it (V1-R10)."""
    return tuple(
        [sequence._replace(aside=True) if other is sequence else other for other in waiting]
    )


def lacks_adapter_slot(config: VllmConfig, plan: Plan, sequence: Sequence) -> bool:
    """Return whether a waiting request must be set aside because running requests use all slots for
    LoRA adapters (V1-R62, V1-R63). Other requests may still join.

    Source: release 0.33.0: LoRAConfig.max_loras, Scheduler.schedule.
    """
    if not config.max_loras or sequence.adapter is None:
        return False
    used = {other.adapter for other in plan.running} - {None}
    return len(used) >= config.max_loras and sequence.adapter not in used


def parked(
    config: VllmConfig, parked: tuple[Sequence, ...], sequence: Sequence
) -> tuple[Sequence, ...]:
    """Return the parked requests, including this one, in the order in which they will run."""
    if config.policy == "priority":
        return tuple(sorted((*parked, sequence), key=importance))
    return (*parked, sequence)


def victim(config: VllmConfig, running: tuple[Sequence, ...]) -> Sequence:
    """Return the request to preempt: the last one (V1CP-R13) or the least important one
    (V1CP-R14)."""
    if config.policy == "priority":
        return max(running, key=importance)
    return running[-1]
