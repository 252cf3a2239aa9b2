"""The content of requests: how many tokens two of them have in common."""

from collections.abc import Iterable

from ...model.scenario import Segment
from .request_history import RequestHistory


def common_prefix_len(first: tuple[Segment, ...], other: tuple[Segment, ...]) -> int:
    """Return the leading tokens that two contents share."""
    shared = 0
    for (stream, length), (other_stream, other_length) in zip(first, other, strict=False):
        if stream != other_stream:
            break
        shared += min(length, other_length)
        if length != other_length:
            break
    return shared


def known_tokens(account: RequestHistory, more: int = 0) -> tuple[Segment, ...]:
    """Return the prompt of a request, its output, and `more` tokens."""
    generated = account.emitted + more
    if not generated:
        return account.content
    return (*account.content, (f"out:{account.id}", generated))


def coming_tokens(account: RequestHistory, more: int = 0) -> tuple[Segment, ...]:
    """Return the tokens of a request, including those in flight, which are computed but cannot be
    hit yet."""
    in_flight = account.num_tokens - account.prompt - account.emitted
    return known_tokens(account, in_flight + more)


def held_by_others(request: RequestHistory, others: Iterable[RequestHistory], block: int) -> int:
    """Return the leading tokens in full blocks, except the last, that one of the others has
    computed."""
    return max(
        (
            min(
                in_common(request, other),
                other.computed - other.tokens_in_flight,
                request.num_tokens - 1,
            )
            // block
            * block
            for other in others
        ),
        default=0,
    )


def in_common(request: RequestHistory, other: RequestHistory) -> int:
    """Return the leading tokens that two requests share."""
    return common_prefix_len(known_tokens(request), known_tokens(other))


def surely_found(
    request: RequestHistory,
    running: Iterable[RequestHistory],
    requests: Iterable[RequestHistory],
    block: int,
) -> int:
    """Return the leading tokens that the request must hit, in a cache that keeps only the block
    filled last for a content. That block may be gone; so since its holder began, no request that no
    longer runs, nor this one earlier, may have filled such a block."""
    if request.started or request.preemptions:
        return 0
    holders, tokens = list(running), 0
    for holder in holders:
        held = held_by_others(request, [holder], block)
        if held > tokens and not any(
            other.ended_at is None or other.ended_at >= holder.began
            for other in requests
            if other is not request
            and not any(other is account for account in holders)
            and _has_filled(other, request, block)
        ):
            tokens = held
    return tokens


def surely_shared(
    request: RequestHistory,
    running: Iterable[RequestHistory],
    requests: Iterable[RequestHistory],
    block: int,
) -> int:
    """Return the leading tokens that the request must hit, in a cache that finds the block filled
    first. Only running requests may ever have filled such a block, and each of them once."""
    holders = [other for other in running if not other.preemptions]
    if request.started or request.preemptions:
        return 0
    for other in requests:
        is_there = other is request or any(other is holder for holder in holders)
        if not is_there and _has_filled(other, request, block):
            return 0
    return held_by_others(request, holders, block)


def _has_filled(other: RequestHistory, request: RequestHistory, block: int) -> bool:
    """`other` may have filled a block that `request` could find, without finding it cached."""
    could = min(in_common(request, other), request.num_tokens - 1)
    filled = min(could, other.max_computed) // block * block
    return filled > other.prefix_hit or bool(filled and other.preemptions)
