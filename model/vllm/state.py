"""What vLLM's scheduler remembers between two steps."""

from .. import sequence
from ..pool import Pool
from ..record import Record


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler.

    `arrival` numbers the requests in the order in which they came; a lower `priority` is more
    important.
    """

    priority: int = 0
    arrival: int = 0


class State(Record, frozen=True):
    """Queues in order. `arrived` counts the requests so far; `aborted` waits to be reported."""

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    arrived: int = 0
    aborted: tuple[str, ...] = ()
