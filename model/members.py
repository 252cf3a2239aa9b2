"""Records of the models, and requests in a scheduler's queues by their ids.

A request is in one queue at a time (ALL-R03).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace


class Record(msgspec.Struct, frozen=True, gc=False):
    """An immutable record; `_replace` returns a changed copy.

    Used as a named tuple is, but several times as quick to make, which every step does for every
    request. The garbage collector leaves it alone: it holds nothing that could hold itself.
    """

    def _replace(self, **changes: Any) -> Self:
        return replace(self, **changes)


class Named(Protocol):
    """A member of a queue."""

    @property
    def id(self) -> str:
        """Return the request's id."""


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
    """Return the queue with the members of `by` in the place of those with the same id."""
    return queue and tuple([by.get(member.id, member) for member in queue])


def completing(state: Any, completes: bool) -> Any:
    """Return the state with the next step's decision on completion fixed: `completes` or not."""
    return state._replace(completes_next=completes)


def ending(state: Any, request_id: str) -> Any:
    """Return the state in which the request's next token is its last. A request that is not in the
    state changes nothing."""
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
