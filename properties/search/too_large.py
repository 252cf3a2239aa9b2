"""Requests that can never run: beyond a limit of the configuration by one token, or by far."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from ...model.scenario import Request
from ..history.bounds import bounds_of
from .generators import request_features_of

NAME = "large"


@st.composite
def too_large(draw: st.DrawFn, system: str, config: Mapping[str, Any]) -> Request | None:
    """A request one of whose bounds it exceeds alone; None where nothing bounds a request.

    It exceeds it by its prompt, by what it generates, or by both together.
    """
    limits = bounds_of(system).limits(config)
    if not limits:
        return None
    features = request_features_of(system)
    if features is not None and (request := draw(features.too_large(config, NAME))) is not None:
        return request
    limit = draw(st.sampled_from(limits))
    longest = limit + draw(st.sampled_from((1, limit)))  # prompt + max_tokens - 1
    prompt = draw(st.sampled_from((1, longest // 2, longest)))
    prompt = max(prompt, 1)
    return Request(id=NAME, arrival=0, prompt=((NAME, prompt),), max_tokens=longest - prompt + 1)
