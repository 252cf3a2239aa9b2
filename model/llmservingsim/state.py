"""The state of LLMServingSim's scheduler between two steps."""

from collections.abc import Callable
from typing import NamedTuple

from .. import sequence
from ..members import Record
from ..pool import Pool
from .config import LlmServingSimConfig


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler. In `head`, tokens count as computed as soon as their batch is
    built. `arrival` numbers the requests in order of arrival."""

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
    """The scheduler between two steps. Queues are listed from front to back, and batches with the
    oldest first.

    `arrived` counts the requests so far, `batches` the batches built so far. The requests in
    `aborted` are reported by the next step. `deferred` contains the requests in the router with the
    times at which they are due, in order of these times. `clock` is the time of the next step.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    inflight: tuple[Batch, ...] = ()
    arrived: int = 0
    batches: int = 0
    aborted: tuple[str, ...] = ()
    deferred: tuple[tuple[int, Sequence], ...] = ()
    clock: int = 0


class Plan(Record, frozen=True):
    """A batch that is being built: the tokens left in the budget, and the queues so far.

    `scheduled` contains the tokens of each request, in scheduling order. `short` is set as soon as
    a request cannot start because too few blocks are free.
    """

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]
    pool: Pool
    budget: int
    scheduled: dict[str, int]
    preempted: tuple[str, ...] = ()
    short: bool = False


class Decision(NamedTuple):
    """The result of a scheduling call: the new state, and the batch, if any."""

    state: State
    batch: Batch | None
    preempted: tuple[str, ...] = ()


class Revision(NamedTuple):
    """The decisions in which revisions differ.

    `promises`: whether a request that starts is promised all blocks that it will need until its
    last token. `counts_early`: whether tokens count as computed when their batch is built, rather
    than when it completes. `prompt_tokens`: a function of a request after the batch, and of its
    tokens in the batch; returns how many tokens the request adds to the prompt throughput.
    """

    schedule: Callable[[LlmServingSimConfig, State], Decision]
    promises: bool
    counts_early: bool
    prompt_tokens: Callable[[Sequence, int], int]
