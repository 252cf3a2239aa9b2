"""What vLLM's scheduler remembers between two steps."""

from ..pool import Content, Pool
from ..record import Record


class Sequence(Record, frozen=True):
    """A request inside the scheduler. Lengths in tokens.

    `arrival` numbers the requests in the order in which they came; a lower `priority` is more
    important. `content` are the segments of the prompt. `computed` tokens have their KV in the
    cache, the first `prefix_hit` of them were found there when it was admitted; `generated`
    tokens were emitted. `blocks` are the block numbers held, the first `published` of which can
    be found by their content.
    """

    id: str
    prompt: int
    max_tokens: int
    output_len: int
    priority: int = 0
    arrival: int = 0
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


class State(Record, frozen=True):
    """Queues in order. `arrived` counts the requests so far; `aborted` waits to be reported."""

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    arrived: int = 0
    aborted: tuple[str, ...] = ()
