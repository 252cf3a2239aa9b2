"""Find the requests that can share tokens with a given request, without searching all requests that
ever ran.

Predicates compare two requests: how many tokens they have in common, and how many of these the
other has computed. An ended request never changes again, so a tree of prefixes keeps, for each
stream of tokens, only the few ended requests that determine these answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic

from typing_extensions import TypeVar

from .content import known_tokens
from .request_history import RequestHistory

R = TypeVar("R", bound=RequestHistory, default=RequestHistory)


@dataclass(slots=True)
class Branch(Generic[R]):
    """Ended requests whose contents continue with the same stream. Each request leaves the stream
    at its own `end`, counted in tokens.

    Attributes:
        farthest: the request that computed most of the stream, with min(end, computed).
        longest: the request with the most tokens in the stream, with its end.
        soonest: the request that computed the earliest whole block after its own hit, with the
            number of tokens up to the end of that block.
        children: the branches that continue this one, keyed by the number of tokens of the stream
            before them.
    """

    farthest: tuple[int, R] | None = None
    longest: tuple[int, R] | None = None
    soonest: tuple[int, R] | None = None
    children: dict[int, dict[str, Branch[R]]] = field(default_factory=dict)

    def add(self, request: R, end: int, block: int) -> None:
        """Keep the request if it is the new `farthest`, `longest` or `soonest`."""
        computed = min(end, request.max_computed)
        if self.farthest is None or computed > self.farthest[0]:
            self.farthest = (computed, request)
        if self.longest is None or end > self.longest[0]:
            self.longest = (end, request)
        cached = 0 if request.preemptions else request.prefix_hit
        filled = (cached // block + 1) * block
        if filled <= computed and (self.soonest is None or filled < self.soonest[0]):
            self.soonest = (filled, request)

    def deciding(self) -> Iterable[R]:
        kept = (self.farthest, self.longest, self.soonest)
        return [entry[1] for entry in kept if entry is not None]


class SharedPrefixes(Generic[R]):
    """Requests, grouped by the stream of their first token. Those that have ended are kept in a
    tree."""

    def __init__(self, requests: Iterable[R], block_size: int) -> None:
        self._block_size = block_size
        self._families: dict[str, dict[str, R]] = {}
        self._ended: dict[str, Branch[R]] = {}
        self._before: dict[str, Branch[R]] = {}
        for request in requests:
            self.add(request)

    def add(self, request: R, instead_of: R | None = None) -> None:
        """Add a request. It replaces `instead_of`, an earlier request with the same id."""
        if instead_of is not None:
            self.remove(instead_of)
        self._families.setdefault(_beginning(request), {})[request.id] = request

    def remove(self, request: R) -> bool:
        """Remove a request that has not ended or may still change. Return whether it was
        present."""
        beginning = _beginning(request)
        family = self._families.get(beginning, {})
        if family.get(request.id) is not request:
            return False
        del family[request.id]
        if not family:
            del self._families[beginning]
        return True

    def end(self, request: R) -> None:
        """Move an ended request into the tree, unless its history may still change."""
        computed_once = request.computed == request.max_computed
        may_change = request.may_change_after_end or request.tokens_loading
        if may_change or not computed_once or not self.remove(request) or not request.started:
            return
        self._grow(self._ended, request)

    def reset(self) -> None:
        """Record that the cache was reset. Tokens of requests that ended before the reset can no
        longer be found, so these requests must not replace later ones in the tree."""
        ended = {id(request): request for request in _deciding((self._before, self._ended))}
        self._before, self._ended = {}, {}
        for request in ended.values():
            self._grow(self._before, request)

    def _grow(self, branches: dict[str, Branch[R]], request: R) -> None:
        end = 0
        for stream, length in known_tokens(request):
            end += length
            branch = branches.setdefault(stream, Branch())
            branch.add(request, end, self._block_size)
            branches = branch.children.setdefault(length, {})

    def of(self, request: R) -> Collection[R]:
        """Return the requests that begin with the same token as this one, including itself.

        Of the ended requests, only those that decide a result in some branch are included: the
        request that shares the most tokens, the one that has computed the most, and the one that
        may have filled a block first.
        """
        family = self._families.get(_beginning(request), {})
        if not self._ended and not self._before:
            return family.values()
        found = {id(other): other for other in family.values()}
        for branches in (self._ended, self._before):
            for stream, length in known_tokens(request):
                branch = branches.get(stream)
                if branch is None:
                    break
                found.update((id(other), other) for other in branch.deciding())
                branches = branch.children.get(length, {})
        return found.values()


def _deciding(trees: Iterable[Mapping[str, Branch[R]]]) -> Iterator[R]:
    """Yield the requests that determine a result in some branch. The same request may occur several
    times."""
    for tree in trees:
        for branch in tree.values():
            yield from branch.deciding()
            yield from _deciding(branch.children.values())


def _beginning(request: RequestHistory) -> str:
    return request.content[0][0] if request.content else f"out:{request.id}"
