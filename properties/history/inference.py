"""What a target does not show of a step, as far as it follows from what was computed."""

from collections.abc import Iterable, Mapping

from ...model.observation import Step
from ..vllm.history import speculation
from ..vllm.history.in_flight import Coming
from .request_history import RequestHistory

NEVER_PREEMPT = frozenset({"spyre"})


def emissions(staying: Mapping[str, RequestHistory], over: Mapping[str, Coming]) -> dict[str, int]:
    """The tokens that come out of the decision that is over: one of each of its requests that give
    one, and its drafts that are right, as far as it has tokens left."""
    return {
        name: min(1 + speculation.right_of(one, coming.proposed), max(one.tokens_left, 1))
        for name, coming in over.items()
        if (one := staying.get(name)) is not None
    }


def restarts(system: str, step: Step) -> bool:
    """Requests may have lost what was computed of them, and have begun anew with a hit."""
    return step.preempted is None and system not in NEVER_PREEMPT


def endings(live: Iterable[RequestHistory]) -> dict[str, str]:
    """The requests that end: no token is left to them."""
    return {
        one.id: "length" if one.output_len == one.max_tokens else "eos"
        for one in live
        if one.output_len is not None and one.tokens_left <= 0
    }
