"""Canonical names: requests and blocks, numbered in the order in which they are first met."""

from collections.abc import Hashable, Iterable
from typing import Any

from ...model.pool import Content, Pool
from .branching_history import BranchingHistory
from .undecided import RequestMenu

GENERATED = "out:"


class CanonicalNames:
    """The numbers of requests and blocks. Words of a menu stay, and so do the requests that it
    mentions.

    `queues` are the scheduler's, in order; each member has an `id` and `blocks`.
    """

    def __init__(
        self, mentioned: frozenset[str], queues: Iterable[Any], history: BranchingHistory
    ) -> None:
        self._requests: dict[str, Hashable] = {name: name for name in mentioned}
        self._blocks: dict[int, int] = {0: 0}
        members = [one for queue in queues for one in queue]
        for one in members:
            self.request(one.id)
        for ended in history.requests:
            self.request(ended)
        for one in members:
            for block in one.blocks:
                self.block(block)

    def request(self, name: str) -> Hashable:
        """The number of a request."""
        return self._requests.setdefault(name, len(self._requests))

    def block(self, number: int) -> int:
        """The number of a block."""
        return self._blocks.setdefault(number, len(self._blocks))

    def content(self, content: Content) -> tuple[Any, ...]:
        """What a block holds, in these names."""
        return tuple((self._stream(stream), tokens) for stream, tokens in content)

    def pool(self, pool: Pool) -> tuple[Hashable, ...]:
        """What the free blocks hold and the order in which they go, and what can be found."""
        free = tuple(
            (self.block(block), None if content is None else self.content(content))
            for block, content in pool.tail
        )
        cached = frozenset(
            (self.content(content), tuple(self.block(block) for block in blocks))
            for content, blocks in pool.cached.items()
        )
        return free, cached

    def computed(self, history: BranchingHistory, *, newest: bool) -> frozenset[Hashable]:
        """What requests have computed that are over or lost it. `newest`: of two blocks with the
        same content the one filled last is found, so that it counts which requests began since."""
        return frozenset(
            (
                *(self.request(one.id), self.content(one.content), one.max_computed, one.emitted),
                tuple(self.request(name) for name in history.begun_since(one) if newest),
            )
            for one in history.requests.values()
            if one.max_computed and (one.ended or one.lost)
        )

    def _stream(self, stream: str) -> Hashable:
        name = stream.removeprefix(GENERATED)
        return (name == stream, self._requests[name]) if name in self._requests else stream


def mentioned(menu: RequestMenu) -> frozenset[str]:
    """The requests whose answers are part of a prompt of the menu."""
    streams = {stream for item in menu.items for stream, _ in item.prompt}
    return frozenset(
        stream.removeprefix(GENERATED) for stream in streams if stream.startswith(GENERATED)
    )
