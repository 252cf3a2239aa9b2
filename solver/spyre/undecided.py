"""Undecided requests in Spyre's queues."""

from typing import Any, cast

from ...model.pool import Content
from ...model.spyre.state import Sequence
from ..undecided import ENDLESS, Candidates, read

OUTPUT_LEN = Sequence._fields.index("output_len")
CONTENT = Sequence._fields.index("content")


class OpenSequence(Sequence):
    """A request that is not fully decided: its candidates are kept where its content would be."""

    __slots__ = ()

    @property
    def candidates(self) -> Candidates:
        """What it may still be."""
        candidates: Any = tuple.__getitem__(self, CONTENT)
        return cast(Candidates, candidates)

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return cast(int, read(self.id, "prompt", self.candidates.prompt))

    @property
    def max_tokens(self) -> int:
        """Tokens that it may generate."""
        return cast(int, read(self.id, "max_tokens", self.candidates.max_tokens))

    @property
    def output_len(self) -> int:
        """Who is not told to end goes on."""
        told: Any = tuple.__getitem__(self, OUTPUT_LEN)
        return cast(int, told or ENDLESS)

    @property
    def content(self) -> Content:
        """Segments of the prompt."""
        return cast(Content, read(self.id, "content", self.candidates.said_by(self.id)))


def opened(request: str, candidates: Candidates) -> Sequence:
    """A request that may be any of the candidates."""
    return decided(OpenSequence(request, 0, 0, 0, candidates))  # type: ignore[arg-type]


def decided(one: Sequence) -> Sequence:
    """The same as an ordinary request, if nothing about it is open any more."""
    if not isinstance(one, OpenSequence):
        return one
    known = one.candidates
    content = known.said_by(one.id)
    if known.prompt is None or known.max_tokens is None or content is None:
        return one
    return Sequence(one.id, known.prompt, known.max_tokens, known.max_tokens, content, *one[5:])
