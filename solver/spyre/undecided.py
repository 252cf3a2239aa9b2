"""Undecided requests in Spyre's queues."""

from typing import Any

from ...model.spyre.state import Sequence
from ..undecided import Candidates, OpenFields, fully_decided


class OpenSequence(OpenFields, Sequence):
    """A request that is not fully decided."""

    __slots__ = ()
    OUTPUT_LEN = Sequence._fields.index("output_len")
    CONTENT = Sequence._fields.index("content")


def opened(request: str, candidates: Candidates) -> Sequence:
    """A request that may be any of the candidates."""
    return decided(OpenSequence(request, 0, 0, 0, candidates))  # type: ignore[arg-type]


def decided(one: Sequence) -> Sequence:
    """The same as an ordinary request, if nothing about it is open any more."""
    if not isinstance(one, OpenSequence) or not fully_decided(one.candidates):
        return one
    known: Any = one.candidates
    tokens = known.max_tokens
    return Sequence(one.id, known.prompt, tokens, tokens, known.said_by(one.id), *one[5:])
