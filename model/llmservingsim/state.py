"""The state of LLMServingSim's scheduler between two steps."""

from collections.abc import Callable
from typing import NamedTuple

from .. import sequence
from ..members import Record
from ..pool import Pool
from .config import LlmServingSimConfig


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler; `computed` tokens count as computed, in `head` from the
    decision on. `arrival` numbers the requests in the order in which they came."""

    arrival: int = 0

    @property
    def priority(self) -> int:
        """Return 0: requests are served first come, first served."""
        return 0


class Batch(NamedTuple):
    """A batch in flight: its requests with their tokens, in scheduling order."""

    number: int
    scheduled: tuple[tuple[str, int], ...]


class State(Record, frozen=True):
    """Queues and batches in order.

    `arrived` counts the requests so far, `batches` those that were built; `aborted` waits to be
    reported.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    inflight: tuple[Batch, ...] = ()
    arrived: int = 0
    batches: int = 0
    aborted: tuple[str, ...] = ()


class Plan(Record, frozen=True):
    """A batch half decided: what is left of the budget (tokens), and what runs so far.

    `scheduled` are the tokens of each request, in the order of their scheduling. `short` once a
    request that could start has found too few blocks.
    """

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    budget: int
    scheduled: dict[str, int]
    preempted: tuple[str, ...] = ()
    short: bool = False


class Decision(NamedTuple):
    """The result of a scheduling call: the state, and the batch, or None without one."""

    state: State
    batch: Batch | None
    preempted: tuple[str, ...] = ()


class Revision(NamedTuple):
    """The decisions in which revisions differ: how a batch is decided, and how it is booked once it
    completes.

    `promises`: a request that starts is promised the blocks until its last token.
    `counts_early`: tokens count as computed when their batch is built, not when it is done.
    `prompt_tokens` are those that a completed request of a batch adds to the prompt throughput:
    (the request with them computed, its tokens in the batch) -> tokens.
    """

    schedule: Callable[[LlmServingSimConfig, State], Decision]
    promises: bool
    counts_early: bool
    prompt_tokens: Callable[[Sequence, int], int]
