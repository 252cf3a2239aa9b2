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


def known_tokens(account: RequestHistory, more: int = 0) -> tuple[Segment, ...]:
    """The prompt of a request and what it has generated, and so many tokens more."""
    generated = account.emitted + more
    if not generated:
        return account.content
    return (*account.content, (f"out:{account.id}", generated))


def coming_tokens(account: RequestHistory, more: int = 0) -> tuple[Segment, ...]:
    """The tokens of a request with those on their way: they are computed, and no other request can
    find them."""
    in_flight = account.num_tokens - account.prompt - account.emitted
    return known_tokens(account, in_flight + more)


def held_by_others(
    one: RequestHistory,
    others: Iterable[RequestHistory],
    block: int,
    *,
    of_prompts: bool = False,
) -> int:
    """Tokens in full blocks at the start of a request, its last one apart, that one of the others
    has computed; `of_prompts`: not what it has generated, which a cache may leave out."""
    return max(
        (
            min(
                in_common(one, other),
                other.computed - other.tokens_in_flight,
                other.prompt if of_prompts else other.computed,
                one.num_tokens - 1,
            )
            // block
            * block
            for other in others
        ),
        default=0,
    )


def in_common(one: RequestHistory, other: RequestHistory) -> int:
    """Tokens at the start that two requests share."""
    return common_prefix_len(known_tokens(one), known_tokens(other))


def surely_shared(
    one: RequestHistory,
    running: Iterable[RequestHistory],
    requests: Iterable[RequestHistory],
    block: int,
    *,
    of_prompts: bool = False,
) -> int:
    """The same in a cache that finds only one of two blocks with the same content, whichever: those
    that run must be the only ones that ever filled such a block, and none of them for a second
    time."""
    there = [other for other in running if not other.preemptions]
    if one.started or one.preemptions:
        return 0
    for other in requests:
        is_there = other is one or any(other is holder for holder in there)
        if not is_there and _has_filled(other, one, block):
            return 0
    return held_by_others(one, there, block, of_prompts=of_prompts)


def _has_filled(other: RequestHistory, one: RequestHistory, block: int) -> bool:
    """A request may have filled a block that `one` could find, and not found it cached."""
    could = min(in_common(one, other), one.num_tokens - 1)
    filled = min(could, other.max_computed) // block * block
    return filled > other.prefix_hit or bool(filled and other.preemptions)
