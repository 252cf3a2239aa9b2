"""What requests say: how much two of them have in common, in tokens."""

from ..model.scenario import Segment
from .ledger import Account


def in_common(one: tuple[Segment, ...], other: tuple[Segment, ...]) -> int:
    """Tokens at the start that two contents share: as far as their segments agree."""
    shared = 0
    for (stream, length), (other_stream, other_length) in zip(one, other, strict=False):
        if stream != other_stream:
            break
        shared += min(length, other_length)
        if length != other_length:
            break
    return shared


def said_by(account: Account, generated: int | None = None) -> tuple[Segment, ...]:
    """The prompt of a request and what it has generated (or the first `generated` tokens)."""
    tokens = account.emitted if generated is None else generated
    return (*account.content, (f"out:{account.id}", tokens)) if tokens else account.content
