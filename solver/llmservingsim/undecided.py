"""Undecided requests in LLMServingSim's queues."""

from typing import Any

from ...model.llmservingsim.state import Sequence
from ..undecided import Candidates, OpenFields, fully_decided


class OpenSequence(OpenFields, Sequence):
    """A request that is not fully decided."""

    __slots__ = ()
    OUTPUT_LEN = Sequence._fields.index("output_len")
    CONTENT = Sequence._fields.index("content")


def opened(request: str, candidates: Candidates) -> Sequence:
    """A request that may be any of the candidates."""
    content: Any = candidates
    return decided(OpenSequence(request, 0, 0, 0, content=content))


def decided(one: Sequence) -> Sequence:
    """The same as an ordinary request, if nothing about it is open any more."""
    if not isinstance(one, OpenSequence) or not fully_decided(one.candidates):
        return one
    known: Any = one.candidates
    return Sequence._make(one)._replace(
        prompt=known.prompt,
        max_tokens=known.max_tokens,
        output_len=known.max_tokens,
        content=known.said_by(one.id),
    )
