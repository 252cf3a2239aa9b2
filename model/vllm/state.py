"""The state of vLLM's scheduler between two steps."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from .. import sequence
from ..members import Record
from ..pool import Content, Pool
from ..scenario import Segment


class Coming(NamedTuple):
    """A token in flight: its place in the output of its request, from 0, the drafts computed before
    it, and how many of them the drafter `proposed`."""

    place: int
    drafts: int = 0
    proposed: int = 0


class Input(NamedTuple):
    """A segment of a prompt that an encoder computes first: the token at which it starts, and its
    place among the segments."""

    segment: Segment
    start: int
    place: int


# A decision in flight: by request what comes of it, None where no token does.
Flight = Mapping[str, Coming | None]


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler.

    `arrival` numbers the requests in the order in which they came; a lower `priority` is more
    important. `drafted` tokens are proposed and not computed; the n-th time that drafts are
    computed, `accepted[n]` of them are right, over and over, and `verified` counts these times.
    `promised` tokens are in flight: known to come, and not emitted; `hoped` drafts are on their
    way with them. A preempted request that is set `aside` waits for those, and is in front from
    then on. A connector has `external` tokens of
    its prompt, and needs `load_steps` more steps to load them; while it is `loading` so many are
    left; `was_loaded` once, it is not loaded again. Its load fails from token `fails_at` on:
    it `arrives` with so many computed. The connector has no answer yet for so many `deferrals`.
    It has left, and `written_by` so many decisions in flight it keeps its blocks; where
    they are sent, for `send_steps` beyond the next step. An encoder computes its `inputs`; what it
    gave for those in `needs` is kept for this request. Each further group of the KV cache has one
    of its `tables`, as long as `blocks`, with the null block where it has given a block back.
    """

    priority: int = 0
    arrival: int = 0
    accepted: tuple[int, ...] = ()
    drafted: int = 0
    verified: int = 0
    promised: int = 0
    hoped: int = 0
    aside: bool = False
    external: int = 0
    load_steps: int = 0
    loading: int | None = None
    was_loaded: bool = False
    fails_at: int | None = None
    arrives: int = 0
    deferrals: int = 0
    send_steps: int | None = None
    written_by: int = 0
    inputs: tuple[Input, ...] = ()
    needs: tuple[int, ...] = ()
    tables: tuple[tuple[int, ...], ...] = ()

    def rewound(self) -> Self:
        return super().rewound()._replace(tables=())

    @property
    def num_uncomputed_tokens(self) -> int:
        """Return the tokens to compute, including those in flight, which will be known in time."""
        return self.prompt + self.generated + self.promised + self.hoped - self.computed

    @property
    def decodes(self) -> bool:
        return self.generated + self.promised > 0 and self.num_uncomputed_tokens == 1


class State(Record, frozen=True):
    """The scheduler between two steps; every queue is in order.

    Attributes:
        arrived: requests so far.
        aborted: requests whose end the next step reports.
        in_flight: decisions that the worker still computes, the oldest first.
        early: steps in a row in which the oldest decision completed before the pipeline was full.
        completes_next: whether a decision completes in the next step, if a recording says so.
        parked: requests that wait and hold blocks which a connector fills.
        leaving: requests that have ended while a load, or a decision in flight, wrote their blocks.
        outputs: encoder outputs that are kept, in the order of their last use.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    arrived: int = 0
    aborted: tuple[str, ...] = ()
    in_flight: tuple[Flight, ...] = ()
    early: int = 0
    completes_next: bool | None = None
    parked: tuple[Sequence, ...] = ()
    leaving: tuple[Sequence, ...] = ()
    outputs: Content = ()

    @property
    def holders(self) -> tuple[Sequence, ...]:
        """Return the requests that may hold blocks."""
        return (*self.running, *self.parked, *self.leaving)
