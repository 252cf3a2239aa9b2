"""What Spyre's scheduler remembers between two steps."""

from ..pool import Content, Pool
from ..record import Record


class Sequence(Record, frozen=True):
    """A request inside the scheduler. Lengths in tokens.

    `content` are the segments of its prompt. `computed` tokens have their KV in the cache (as the
    scheduler counts them), the first `prefix_hit` of them were found there; `generated` tokens
    were emitted, the first by the last prefill chunk. `blocks` are the block numbers held, the
    first `published` of which can be found by their content. `paused_steps` counts the steps
    that the request was paused without a break.
    """

    id: str
    prompt: int
    max_tokens: int
    output_len: int
    content: Content = ()
    computed: int = 0
    generated: int = 0
    prefix_hit: int = 0
    blocks: tuple[int, ...] = ()
    published: int = 0
    paused_steps: int = 0

    @property
    def prefilled(self) -> bool:
        """The whole prompt is in the cache: the request decodes."""
        return self.computed >= self.prompt

    @property
    def remaining(self) -> int:
        """Decode steps that it may still run, by what the scheduler was told."""
        return self.max_tokens - self.generated

    @property
    def known(self) -> Content:
        """The segments of the prompt and of what was generated since."""
        if not self.generated:
            return self.content
        return (*self.content, (f"out:{self.id}", self.generated))


class State(Record, frozen=True):
    """Queues in order, and what the last step left behind.

    `running` includes the one request that prefills, not those that are `paused`. `tkv` is what
    admission goes by in releases that do so (`Revision.stale_tkv`); `runner_tkv` is the model
    runner's own copy, which an idle step does not reset. `aborted` waits to be reported by the
    next step. `lost_blocks` stay promised to requests that are gone
    (`Revision.leaks_reservations`).
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    paused: tuple[Sequence, ...] = ()
    last_step_was_prefill: bool = False
    tkv: int = 0
    runner_tkv: int = 0
    pool: Pool = Pool()
    lost_blocks: int = 0
    aborted: tuple[str, ...] = ()

    @property
    def admitted(self) -> tuple[Sequence, ...]:
        """Every request that holds blocks."""
        return self.running + self.paused

    @property
    def prefilling(self) -> Sequence | None:
        """The request between its first and its last chunk, if there is one."""
        for one in self.running:
            if one.computed < one.prompt:
                return one
        return None

    @property
    def decoding(self) -> tuple[Sequence, ...]:
        """The decode batch, in queue order."""
        return tuple([one for one in self.running if one.computed >= one.prompt])
