"""What a step of vLLM's scheduler is, half decided."""

from ..pool import Pool
from ..record import Record
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
