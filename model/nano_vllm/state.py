"""What nano-vLLM's scheduler remembers between two steps."""

from ..pool import Content, Pool
from ..record import Record


class Sequence(Record, frozen=True):
    """A request inside the scheduler. Lengths in tokens.

    `content` are the segments of the prompt. `computed` tokens have their KV in the cache, the
    first `prefix_hit` of them were found there when it was admitted; `generated` tokens were
    emitted. `blocks` are the block table; the first `published` can be found by their content.
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

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return self.prompt + self.generated

    @property
    def known(self) -> Content:
        """The segments of the prompt and of what was generated since."""
        if not self.generated:
            return self.content
        return (*self.content, (f"out:{self.id}", self.generated))

    def rewound(self) -> "Sequence":
        """The same with nothing computed and an empty block table."""
        return self._replace(computed=0, prefix_hit=0, blocks=(), published=0)


class State(Record, frozen=True):
    """Queues in order. `aborted` waits to be reported.

    In 0.2.0 a sequence whose prompt is computed in part stays at the head of `waiting`.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    aborted: tuple[str, ...] = ()
