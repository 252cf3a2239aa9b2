"""What a target does not show of a step, as far as it follows from what was computed."""

from collections.abc import Iterable

from . import speculation
from .request_history import RequestHistory


def emissions(computed: Iterable[RequestHistory], promised: bool = False) -> dict[str, int]:
    """The tokens that come out of requests that have computed: one of each all of whose known
    tokens are computed, and its drafts that are right, as far as it has tokens left; one of each
    where they were `promised`."""
    if promised:
        return {one.id: 1 for one in computed}
    return {
        one.id: min(1 + speculation.right(one, 0), max(one.tokens_left, 1))
        for one in computed
        if one.computed >= one.num_tokens
    }


def endings(live: Iterable[RequestHistory]) -> dict[str, str]:
    """The requests that end: no token is left to them."""
    return {
        one.id: "length" if one.output_len == one.max_tokens else "eos"
        for one in live
        if one.output_len is not None and one.tokens_left <= 0
    }
