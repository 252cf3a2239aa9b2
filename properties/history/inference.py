"""What a target does not show of a step, as far as it follows from what was computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...model.observation import Step
from .request_history import RequestHistory

if TYPE_CHECKING:
    from .features import Features


def restarts(features: Features, step: Step) -> bool:
    """Return whether requests may have been preempted and started again, unseen, with a hit."""
    return step.preempted is None and not features.never_preempts


def endings(live: Iterable[RequestHistory]) -> dict[str, str]:
    """Return the requests with no token left, each with the reason of its end."""
    return {
        request.id: "length" if request.output_len == request.max_tokens else "eos"
        for request in live
        if request.output_len is not None and request.tokens_left <= 0
    }
