"""What LLMServingSim's scheduler remembers between two steps."""

from typing import NamedTuple

from ..pool import Content, Pool
from ..record import Record


class Sequence(Record, frozen=True):
    """A request inside the scheduler. Lengths in tokens.

    `arrival` numbers the requests in the order in which they came. `content` are the segments of
    the prompt. `computed` tokens count as computed, the first `prefix_hit` of them were found in
    the cache when it was admitted; `generated` tokens were emitted. `blocks` are the block numbers
    held, the first `published` of which can be found by their content.
    """

    id: str
    prompt: int
    max_tokens: int
    output_len: int
    arrival: int = 0
    content: Content = ()
    computed: int = 0
    generated: int = 0
    prefix_hit: int = 0
    blocks: tuple[int, ...] = ()
    published: int = 0

    @property
    def priority(self) -> int:
        """No request is more important than others: first come, first served."""
        return 0

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return self.prompt + self.generated

    @property
    def behind(self) -> int:
        """Known tokens that are not computed yet; 1 is a decode."""
        return self.prompt + self.generated - self.computed

    @property
    def decodes(self) -> bool:
        """Just its last token is to be computed."""
        return self.generated > 0 and self.behind == 1

    @property
    def known(self) -> Content:
        """The segments of the prompt and of what was generated since."""
        if not self.generated:
            return self.content
        return (*self.content, (f"out:{self.id}", self.generated))

    def rewound(self) -> "Sequence":
        """The same with nothing computed and nothing held."""
        return self._replace(computed=0, prefix_hit=0, blocks=(), published=0)


class Batch(NamedTuple):
    """Requests on their way through the pipeline, each with its tokens, in scheduling order."""

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


class Plan(NamedTuple):
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
    """What a call of the scheduler gives: the state, and the batch, None where there is none."""

    state: State
    batch: Batch | None
    preempted: tuple[str, ...] = ()
