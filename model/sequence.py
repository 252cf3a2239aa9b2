"""A request inside a scheduler: the state that all systems share."""

from typing import Any, Self

from .members import Record
from .pool import Content, prefix
from .scenario import Request


class Sequence(Record, frozen=True):
    """A request inside a scheduler. Lengths are in tokens.

    `content` contains the segments of its prompt. According to the scheduler, the keys and values
    of its first `computed` tokens are in the cache; the first `prefix_hit` of these were found
    there on admission. `generated` of its `output_len` tokens have been emitted (ALL-R04). `blocks`
    are the numbers of its blocks, and the first `published` of them can be found by their content.
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

    @classmethod
    def of(cls, request: Request, **more: Any) -> Self:
        """Return a request that has just arrived. `more` contains fields that only one system
        has."""
        return cls(
            request.id,
            request.prompt_len,
            request.max_tokens,
            request.tokens_to_emit,
            content=request.prompt,
            **more,
        )

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens known so far, prompt and output together."""
        return self.prompt + self.generated

    @property
    def num_uncomputed_tokens(self) -> int:
        """Return the number of known tokens that are not computed yet. For a decoding request, this
        is 1."""
        return self.prompt + self.generated - self.computed

    @property
    def decodes(self) -> bool:
        return self.generated > 0 and self.num_uncomputed_tokens == 1

    @property
    def known(self) -> Content:
        """Return the segments of the prompt and of the output so far."""
        if not self.generated:
            return self.content
        return (*self.content, (f"out:{self.id}", self.generated))

    def name(self, number: int, block_size: int) -> Content:
        """Return the content by which block `number` of the request can be found: all tokens up to
        the end of this block."""
        return prefix(self.known, (number + 1) * block_size)

    def rewound(self) -> Self:
        return self._replace(computed=0, prefix_hit=0, blocks=(), published=0)
