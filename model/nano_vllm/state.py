"""The state of nano-vLLM's scheduler between two steps."""

from ..members import Record
from ..pool import Pool
from ..sequence import Sequence as Sequence


class State(Record, frozen=True):
    """The scheduler between two steps. Each queue is listed from front to back. The next step
    reports the requests in `aborted`.

    In 0.2.0, a sequence whose prompt is partly computed stays at the head of `waiting`.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    aborted: tuple[str, ...] = ()


class Plan(Record, frozen=True):
    """A decision. `scheduled` holds the tokens of each sequence, in scheduling order."""

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    scheduled: dict[str, int]
    is_prefill: bool
    preempted: tuple[str, ...] = ()
