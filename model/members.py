"""Members of a scheduler's queues, by their ids."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Named(Protocol):
    """Whatever stands in a queue."""

    @property
    def id(self) -> str:
        """The request's id."""


Member = TypeVar("Member", bound=Named)


def without(queue: Iterable[Member], request_id: str) -> tuple[Member, ...]:
    """The queue without one request."""
    return tuple([one for one in queue if one.id != request_id])


def find(queue: Iterable[Member], request_id: str) -> Member | None:
    """The request of this id, if it is there."""
    return next((one for one in queue if one.id == request_id), None)
