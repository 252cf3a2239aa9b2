"""States of vLLM's scheduler without names: what two of them share that behave alike."""

from collections.abc import Hashable
from typing import Any

from ...model.pool import Content, free_blocks
from ...model.vllm.state import Sequence, State
from ..book import Book
from ..undecided import Candidates, Menu
from .undecided import OpenSequence

GENERATED = "out:"


class Key:
    """The key of a state, with or without a prefix cache.

    Without one, requests and blocks are numbers only, and what a request has generated is as good
    as if its prompt had been longer: it counts by its known tokens, by those computed, and by what
    is left to generate.

    `mentioned`: requests whose answers the menu has prompts with; these keep their names.
    """

    def __init__(self, caches: bool, mentioned: frozenset[str] = frozenset()) -> None:
        self._caches = caches
        self._mentioned = mentioned

    def __call__(self, state: State, book: Book) -> Hashable:
        """The key; equal for states that differ in names only."""
        queues = self._with_contents if self._caches else self._by_length
        return state.pool.size, len(state.aborted), queues(state, book)

    def _by_length(self, state: State, book: Book) -> Hashable:
        places = {name: place for place, name in enumerate(book.live)}
        return (
            tuple(_as_numbers(one, book, places, True) for one in state.waiting),
            tuple(_as_numbers(one, book, places, False) for one in state.running),
            free_blocks(state.pool),
        )

    def _with_contents(self, state: State, book: Book) -> Hashable:
        """With a cache it matters what blocks hold, and in which order the free ones go. Those that
        hold nothing go first, in whatever order."""
        pool = state.pool
        places = {name: place for place, name in enumerate(book.live)}
        names = _Names(self._mentioned, state, book)
        queues = tuple(
            tuple(
                (*_as_contents(one, names), one.generated, *_as_numbers(one, book, places, waits))
                for one in queue
            )
            for queue, waits in ((state.waiting, True), (state.running, False))
        )
        free = tuple(
            (names.block(block), None if content is None else names.content(content))
            for block, content in pool.tail
        )
        cached = frozenset(
            (names.content(content), tuple(names.block(block) for block in blocks))
            for content, blocks in pool.cached.items()
        )
        computed = frozenset(
            (names.request(one.id), names.content(one.content), one.most_computed, one.emitted)
            for one in book.accounts.values()
            if one.most_computed and (one.ended or one.lost)
        )
        return queues, free_blocks(pool), free, cached, computed


class _Names:
    """Requests and blocks by the place at which they are first met; words of a menu stay, and so
    do the names that it mentions."""

    def __init__(self, mentioned: frozenset[str], state: State, book: Book) -> None:
        self._requests: dict[str, Hashable] = {name: name for name in mentioned}
        self._blocks: dict[int, int] = {0: 0}
        for one in (*state.waiting, *state.running):
            self.request(one.id)
        for ended in book.accounts:
            self.request(ended)
        for one in state.running:
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

    def _stream(self, stream: str) -> Hashable:
        name = stream.removeprefix(GENERATED)
        return (name == stream, self._requests[name]) if name in self._requests else stream


def mentioned(menu: Menu) -> frozenset[str]:
    """The requests whose answers are part of a prompt of the menu."""
    streams = {stream for item in menu.items for stream, _ in item.prompt}
    return frozenset(
        stream.removeprefix(GENERATED) for stream in streams if stream.startswith(GENERATED)
    )


def left(one: Sequence) -> tuple[int, ...]:
    """Tokens that a request may still generate: one number, or several if it is undecided."""
    if isinstance(one, OpenSequence):
        return one.candidates.left_after(one.generated)
    return (one.max_tokens - one.generated,)


def _as_numbers(one: Sequence, book: Book, places: dict[str, int], waits: bool) -> tuple[Any, ...]:
    """What the scheduler goes by, and what the client knows that is no part of it.

    A request of which nobody knows the prompt yet has not started: it counts by its candidates.
    """
    candidates: Candidates | None = one.candidates if isinstance(one, OpenSequence) else None
    account = book.live.get(one.id)
    if candidates is not None and candidates.prompt is None:
        return candidates.bits, one.priority, places.get(one.id)
    client: tuple[Any, ...] = ()
    if account is not None:
        client = (
            account.computed - one.computed,
            account.emitted - one.generated,
            account.prefix_hit - one.prefix_hit,
            account.prefilled,
            # Who runs is preempted before it waits again.
            waits and account.preemptions > 0,
        )
    return (
        one.num_tokens,
        one.computed,
        one.generated > 0,
        left(one),
        len(one.blocks),
        one.published,
        one.prefix_hit,
        one.priority,
        places.get(one.id),
        *client,
    )


def _as_contents(one: Sequence, names: _Names) -> tuple[Any, ...]:
    if isinstance(one, OpenSequence) and one.candidates.content is None:
        content: Hashable = one.candidates.bits
    else:
        content = names.content(one.content)
    return names.request(one.id), content, tuple(names.block(block) for block in one.blocks)
