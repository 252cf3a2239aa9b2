"""Requests that begin alike: only they can have tokens in common that a prefix cache finds."""

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from .request_history import RequestHistory

R = TypeVar("R", bound=RequestHistory)


class Kin(Generic[R]):
    """Requests by the stream of their first token."""

    def __init__(self, requests: Iterable[R]) -> None:
        self._families: dict[str, dict[str, R]] = {}
        for one in requests:
            self.add(one)

    def add(self, one: R, instead_of: R | None = None) -> None:
        """A request is there; `instead_of`: the one that had its id before."""
        if instead_of is not None:
            self.remove(instead_of)
        self._families.setdefault(_beginning(one), {})[one.id] = one

    def remove(self, one: R) -> None:
        """Forget a request."""
        family = self._families[_beginning(one)]
        if family.get(one.id) is one:
            del family[one.id]
        if not family:
            del self._families[_beginning(one)]

    def of(self, one: R) -> Collection[R]:
        """The requests that begin as this one does, itself included, in order of arrival."""
        return self._families.get(_beginning(one), {}).values()


def _beginning(one: RequestHistory) -> str:
    return one.content[0][0] if one.content else f"out:{one.id}"
