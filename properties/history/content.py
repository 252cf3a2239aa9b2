"""The contents of requests, and the tokens that two contents share."""

from collections.abc import Iterable

from ...model.scenario import Segment
from .request_history import RequestHistory


def common_prefix_len(first: tuple[Segment, ...], other: tuple[Segment, ...]) -> int:
    """Return the number of leading tokens that two contents share."""
    shared = 0
    for (stream, length), (other_stream, other_length) in zip(first, other, strict=False):
        if stream != other_stream:
            break
        shared += min(length, other_length)
        if length != other_length:
            break
    return shared


def known_tokens(account: RequestHistory, more: int = 0) -> tuple[Segment, ...]:
    """Return the prompt of a request, its output so far, and `more` further tokens."""
    generated = account.emitted + more
    if not generated:
        return account.content
    return (*account.content, (f"out:{account.id}", generated))


def coming_tokens(account: RequestHistory, more: int = 0) -> tuple[Segment, ...]:
    """Return the tokens of a request, its tokens in flight, and `more` further tokens. Tokens in
    flight are computed, but not in the prefix cache yet."""
    in_flight = account.num_tokens - account.prompt - account.emitted
    return known_tokens(account, in_flight + more)


def held_by_others(
    request: RequestHistory,
    others: Iterable[RequestHistory],
    block: int,
    *,
    of_prompts: bool = False,
    completed: bool = False,
) -> int:
    """Return how many of the first tokens of a request are in full blocks that one of the `others`
    has computed. The request's last token does not count.

    With `of_prompts`, generated tokens do not count, since a cache may leave them out. With
    `completed`, count only tokens computed by decisions that have completed.
    """
    return max(
        (
            min(
                in_common(request, other),
                other.settled if completed else other.computed,
                other.computed - other.tokens_in_flight,
                other.prompt if of_prompts else other.computed,
                request.num_tokens - 1,
            )
            // block
            * block
            for other in others
        ),
        default=0,
    )


def in_common(request: RequestHistory, other: RequestHistory) -> int:
    return common_prefix_len(known_tokens(request), known_tokens(other))


def surely_shared(
    request: RequestHistory,
    running: Iterable[RequestHistory],
    requests: Iterable[RequestHistory],
    block: int,
    *,
    of_prompts: bool = False,
    completed: bool = False,
) -> int:
    """Return how many tokens of a request every cache must find, because a running request has
    computed them.

    Some caches keep only one of two identical blocks. So the result is 0 if a shared block may also
    have been filled by a request that is not running, or twice by one request.
    """
    holders = [
        other for other in running if not other.preemptions and other.partition == request.partition
    ]
    if request.started or request.preemptions:
        return 0
    there = {id(request), *map(id, holders)}
    for other in requests:
        if other.max_computed and id(other) not in there and _has_filled(other, request, block):
            return 0
    return held_by_others(request, holders, block, of_prompts=of_prompts, completed=completed)


def _has_filled(other: RequestHistory, request: RequestHistory, block: int) -> bool:
    """Return whether `other` may have computed, and not just found in the cache, a full block that
    `request` could hit."""
    could = min(in_common(request, other), request.num_tokens - 1)
    filled = min(could, other.max_computed) // block * block
    return filled > other.prefix_hit or bool(filled and other.preemptions)
