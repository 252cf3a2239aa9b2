"""What requests say: how much two of them have in common, in tokens."""

from collections.abc import Iterable

from ...model.scenario import Segment
from .request_history import RequestHistory


def common_prefix_len(one: tuple[Segment, ...], other: tuple[Segment, ...]) -> int:
    """Tokens at the start that two contents share: as far as their segments agree."""
    shared = 0
    for (stream, length), (other_stream, other_length) in zip(one, other, strict=False):
        if stream != other_stream:
            break
        shared += min(length, other_length)
        if length != other_length:
            break
    return shared


def known_tokens(account: RequestHistory) -> tuple[Segment, ...]:
    """The prompt of a request and what it has generated."""
    if not account.emitted:
        return account.content
    return (*account.content, (f"out:{account.id}", account.emitted))


def held_by_others(one: RequestHistory, others: Iterable[RequestHistory], block: int) -> int:
    """Tokens in full blocks at the start of a request, its last one apart, that one of the others
    has computed."""
    return max(
        (
            min(in_common(one, other), other.computed, one.num_tokens - 1) // block * block
            for other in others
        ),
        default=0,
    )


def in_common(one: RequestHistory, other: RequestHistory) -> int:
    """Tokens at the start that two requests share."""
    return common_prefix_len(known_tokens(one), known_tokens(other))


def surely_found(
    one: RequestHistory,
    running: Iterable[RequestHistory],
    requests: Iterable[RequestHistory],
    block: int,
) -> int:
    """The same for those that run, in a cache that finds of two blocks with the same content only
    the one filled last, which may be gone: of all requests no other, nor this one before, may have
    filled such a block."""
    if one.started or one.preemptions:
        return 0
    there = list(running)
    for other in requests:
        if other is one or any(other is account for account in there):
            continue
        filled = min(in_common(one, other), other.max_computed) // block * block
        if filled > other.prefix_hit or (filled and other.preemptions):
            return 0
    return held_by_others(one, there, block)
