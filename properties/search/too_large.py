"""Requests that can never run: beyond a limit of the configuration by one token, or by far."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from ...model.scenario import Request
from ..history.bounds import bounds_of
from ..vllm.history import encoder

NAME = "large"


@st.composite
def too_large(draw: st.DrawFn, system: str, config: Mapping[str, Any]) -> Request | None:
    """A request one of whose bounds it exceeds alone; None where nothing bounds a request.

    It exceeds it by its prompt, by what it generates, or by both together.
    """
    limits = bounds_of(system).limits(config)
    if not limits:
        return None
    if encoder.encodes(config) and draw(st.booleans()):
        return _too_large_for_the_encoder(draw(st.sampled_from((1, 9))) + encoder.longest(config))
    limit = draw(st.sampled_from(limits))
    longest = limit + draw(st.sampled_from((1, limit)))  # prompt + max_tokens - 1
    prompt = draw(st.sampled_from((1, longest // 2, longest)))
    prompt = max(prompt, 1)
    return Request(id=NAME, arrival=0, prompt=((NAME, prompt),), max_tokens=longest - prompt + 1)


def _too_large_for_the_encoder(tokens: int) -> Request:
    prompt = ((f"{NAME} input", tokens),)
    return Request(id=NAME, arrival=0, prompt=prompt, max_tokens=1, encoder_inputs=(0,))
