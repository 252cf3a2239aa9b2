"""Canonical names: requests and blocks numbered in order of first occurrence."""

from collections.abc import Hashable, Iterable
from typing import Any

from ...model.pool import Content, Pool
from .branching_history import BranchingHistory
from .undecided import RequestMenu

GENERATED = "out:"


class CanonicalNames:
    """The numbers that replace the names of requests and blocks.

    Requests that occur in a prompt of the menu keep their names. `queues` are the scheduler's
    queues, in order. Each member of a queue has an `id` and `blocks`.
    """

    def __init__(
        self, mentioned: frozenset[str], queues: Iterable[Any], history: BranchingHistory
    ) -> None:
        self._requests: dict[str, Hashable] = {name: name for name in mentioned}
        self._blocks: dict[int, int] = {0: 0}
        members = [member for queue in queues for member in queue]
        for member in members:
            self.request(member.id)
        for ended in history.requests:
            self.request(ended)
        for member in members:
            for block in member.blocks:
                self.block(block)

    def request(self, name: str) -> Hashable:
        return self._requests.setdefault(name, len(self._requests))

    def block(self, number: int) -> int:
        return self._blocks.setdefault(number, len(self._blocks))

    def content(self, content: Content) -> tuple[Any, ...]:
        return tuple((self._stream(stream), tokens) for stream, tokens in content)

    def pool(self, pool: Pool) -> tuple[Hashable, ...]:
        """Return the free blocks, with their order and content, and the blocks that the cache can
        find."""
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
        """Return the content that ended and preempted requests had computed.

        With `newest`, the cache finds the block that was filled last if several have the same
        content. It then matters which requests have begun since those requests ended.
        """
        return frozenset(
            (
                *(
                    self.request(account.id),
                    self.content(account.content),
                    account.max_computed,
                    account.emitted,
                ),
                tuple(self.request(name) for name in history.begun_since(account) if newest),
            )
            for account in history.requests.values()
            if account.max_computed and (account.ended or account.recompute_from)
        )

    def _stream(self, stream: str) -> Hashable:
        name = stream.removeprefix(GENERATED)
        return (name == stream, self._requests[name]) if name in self._requests else stream


def mentioned(menu: RequestMenu) -> frozenset[str]:
    """Return the requests whose answers occur in a prompt of the menu."""
    streams = {stream for item in menu.items for stream, _ in item.prompt}
    return frozenset(
        stream.removeprefix(GENERATED) for stream in streams if stream.startswith(GENERATED)
    )
