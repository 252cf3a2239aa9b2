"""What vLLM's scheduler remembers between two steps."""

from .. import sequence
from ..pool import Pool
from ..record import Record


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler.

    `arrival` numbers the requests in the order in which they came; a lower `priority` is more
    important. `drafted` tokens are proposed and not computed; the n-th time that drafts are
    computed, `accepted[n]` of them are right, over and over, and `verified` counts these times.
    """

    priority: int = 0
    arrival: int = 0
    accepted: tuple[int, ...] = ()
    drafted: int = 0
    verified: int = 0


class State(Record, frozen=True):
    """Queues in order. `arrived` counts the requests so far; `aborted` waits to be reported."""

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    arrived: int = 0
    aborted: tuple[str, ...] = ()
