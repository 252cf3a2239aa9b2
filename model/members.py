"""Immutable records for the models, and functions on queues of requests with ids.

A request is in one queue at a time (ALL-R03).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """An immutable record. `_replace` returns a changed copy.

    It works like a named tuple, but is several times faster to create. This matters, because every
    step creates a record for every request. The garbage collector ignores records, because they
    cannot be part of a cycle.
    """

    if TYPE_CHECKING:

        def _replace(self, **changes: Any) -> Self: ...

    else:
        _replace = msgspec.Struct.__replace__


class Named(Protocol):
    """A member of a queue."""

    @property
    def id(self) -> str: ...


Member = TypeVar("Member", bound=Named)
QUEUES = ("waiting", "running", "paused")


def without(queue: Iterable[Member], request_id: str) -> tuple[Member, ...]:
    return tuple([member for member in queue if member.id != request_id])


def find(queue: Iterable[Member], request_id: str) -> Member | None:
    for member in queue:
        if member.id == request_id:
            return member
    return None


def changed(queue: tuple[Member, ...], by: Mapping[str, Member]) -> tuple[Member, ...]:
    """Return the queue, with each member replaced by the member of `by` that has the same id."""
    return queue and tuple([by.get(member.id, member) for member in queue])


def completing(state: Any, completes: bool) -> Any:
    """Return the state after recording whether a decision completes in the next step."""
    return state._replace(completes_next=completes)


def ending(state: Any, request_id: str) -> Any:
    """Return the state in which the request's next token is its last. An unknown id has no
    effect."""
    queues = {name: getattr(state, name) for name in QUEUES if hasattr(state, name)}
    return state._replace(
        **{
            name: tuple(
                member._replace(output_len=member.generated + 1)
                if member.id == request_id
                else member
                for member in queue
            )
            for name, queue in queues.items()
            if find(queue, request_id) is not None
        }
    )
