"""Undecided requests in Spyre's queues."""

from ...model.spyre.state import Sequence
from ..exploration.undecided import Candidates, OpenFields, fully_decided, settled


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


def opened(request: str, candidates: Candidates) -> Sequence:
    """A request that may be any of the candidates."""
    return decided(OpenSequence(request, 0, 0, 0, candidates))  # type: ignore[arg-type]


def decided(one: Sequence) -> Sequence:
    """An ordinary request, if nothing about this one is open any more."""
    if not isinstance(one, OpenSequence) or not fully_decided(one.candidates):
        return one
    return settled(one, Sequence)
