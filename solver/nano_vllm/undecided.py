"""Undecided sequences in nano-vLLM's queues."""

from ...model.nano_vllm.state import Sequence
from ..exploration.undecided import Candidates, OpenFields, fully_decided, settled


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A sequence that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


def opened(request: str, candidates: Candidates) -> Sequence:
    """A sequence that may be any of the candidates."""
    return decided(OpenSequence(request, 0, 0, 0, candidates))  # type: ignore[arg-type]


def decided(one: Sequence) -> Sequence:
    """The request as an ordinary sequence once all its lengths are chosen, else as it is."""
    if not isinstance(one, OpenSequence) or not fully_decided(one.candidates):
        return one
    return settled(one, Sequence)
