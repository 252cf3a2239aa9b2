"""States of Spyre's scheduler without names: what two of them share that behave alike."""

from collections.abc import Hashable
from typing import Any

from ...model.pool import free_blocks
from ...model.spyre import release_2_1_2
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence, State
from ..book import Book
from ..names import Names
from ..undecided import left
from .undecided import OpenSequence


class Key:
    """The key of a state in one revision, with or without a prefix cache.

    Without one, requests and blocks are numbers only, and a request that decodes is as good as one
    whose prompt was all that it has computed: it counts by that and by what is left to generate.
    The order of requests that decode matters where they may be paused, to break ties; else it is
    only the order in which they are listed.

    `mentioned`: requests whose answers the menu has prompts with; these keep their names.
    """

    def __init__(
        self, revision: Revision, caches: bool, mentioned: frozenset[str] = frozenset()
    ) -> None:
        self._pauses = "paused" in revision.shows
        self._stale = revision.current_tkv is release_2_1_2.current_tkv
        self._caches = caches
        self._mentioned = mentioned

    def __call__(self, state: State, book: Book) -> Hashable:
        """The key; equal for states that differ in names only."""
        tkv = (state.tkv, state.runner_tkv) if self._stale else ()
        queues = self._with_contents if self._caches else self._by_length
        return state.last_step_was_prefill, tkv, state.lost_blocks, queues(state, book)

    def _by_length(self, state: State, book: Book) -> Hashable:
        decoding = [self._decoding(one, book) for one in state.running if one.prefilled]
        if self._pauses:
            decoding.sort(key=lambda member: member[0])  # stable: ties keep their places
        else:
            decoding.sort()
        return (
            tuple(_unstarted(one, book) for one in state.waiting),
            tuple(_unstarted(one, book) for one in state.running if not one.prefilled),
            tuple(decoding),
            tuple(self._decoding(one, book) for one in state.paused),
            free_blocks(state.pool),
        )

    def _decoding(self, one: Sequence, book: Book) -> tuple[Any, ...]:
        return (
            one.generated if self._pauses else 0,
            one.computed,
            left(one),
            one.paused_steps,
            len(one.blocks),
            *_as_the_client_sees_it(one, book),
        )

    def _with_contents(self, state: State, book: Book) -> Hashable:
        """With a cache it matters what blocks hold, and in which order the free ones go."""
        members, pool = (state.waiting, state.running, state.paused), state.pool
        names = Names(self._mentioned, members, book)
        queues = tuple(
            tuple((*_content(one, names), *_unstarted(one, book)) for one in queue)
            for queue in members
        )
        fresh = len(pool.head) + (0 if pool.size is None else pool.size + 1 - pool.fresh)
        gone = frozenset(
            (names.content(one.content), one.computed, one.emitted, names.request(one.id))
            for one in book.requests.values()
            if one.ended and one.computed
        )
        return queues, fresh, names.pool(pool), gone


def _unstarted(one: Sequence, book: Book) -> tuple[Any, ...]:
    if isinstance(one, OpenSequence):
        shape: tuple[int, ...] = (one.candidates.bits,)
    else:
        shape = (one.prompt, one.max_tokens, one.output_len)
    return (
        shape,
        one.computed,
        one.generated,
        one.prefix_hit,
        one.paused_steps,
        one.published,
        len(one.blocks),
        *_as_the_client_sees_it(one, book),
    )


def _content(one: Sequence, names: Names) -> tuple[Any, ...]:
    content = () if isinstance(one, OpenSequence) else names.content(one.content)
    return names.request(one.id), content, tuple(names.block(block) for block in one.blocks)


def _as_the_client_sees_it(one: Sequence, book: Book) -> tuple[int, ...]:
    """Where the client's account differs from the scheduler's own, and what only it knows."""
    account = book.live.get(one.id)
    if account is None:
        return ()
    return (
        account.computed - one.computed,
        account.emitted - one.generated,
        account.paused_steps - one.paused_steps,
        account.prefix_hit - one.prefix_hit,
        0 if account.emitted else account.prefill_steps,
    )
