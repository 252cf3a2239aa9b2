"""The state of nano-vLLM's scheduler between two steps."""

from ..members import Record
from ..pool import Pool
from ..sequence import Sequence as Sequence


class State(Record, frozen=True):
    """Queues in order. `aborted` waits to be reported.

    In 0.2.0 a sequence whose prompt is computed in part stays at the head of `waiting`.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    aborted: tuple[str, ...] = ()


class Plan(Record, frozen=True):
    """A decision. `scheduled` are the tokens of each sequence, in scheduling order."""

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    scheduled: dict[str, int]
    is_prefill: bool
    preempted: tuple[str, ...] = ()
