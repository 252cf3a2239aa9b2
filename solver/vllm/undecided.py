"""Undecided requests in vLLM's queues."""

from typing import Any

from ...model.vllm.state import Sequence
from ..exploration.undecided import Candidates, OpenFields, fully_decided, settled


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided, but for its priority."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


def opened(request: str, candidates: Candidates) -> Sequence:
    """A request that may be any of the candidates, all of one priority and with one load."""
    assert candidates.priority is not None, request
    assert candidates.external_tokens is not None, request
    assert candidates.load_steps is not None, request
    content: Any = candidates
    return decided(
        OpenSequence(
            *(request, 0, 0, 0),
            priority=candidates.priority,
            content=content,
            external=candidates.external_tokens,
            load_steps=candidates.load_steps,
        )
    )


def decided(one: Sequence) -> Sequence:
    """An ordinary request, if nothing about this one is open any more."""
    if not isinstance(one, OpenSequence) or not fully_decided(one.candidates):
        return one
    return settled(one, Sequence)
