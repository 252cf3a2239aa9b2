"""Explicit-state search: explore every behaviour of a space, and expand each state once.

A space supplies its initial states, the moves out of a state, and a key that is equal for states
that differ only in names. This module knows nothing about schedulers.

Configurations that mostly behave in the same way are explored together. Each state carries the set
of configurations that reach it, and each move the set of those that make it. A set is stored as the
bits of an integer. States and broken rules are counted per configuration.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

Order = Literal["breadth", "depth", "deepening", "random"]
ORDERS: tuple[Order, ...] = ("breadth", "depth", "deepening", "random")
Label = tuple[Any, ...]
BETWEEN_REPORTS = 64  # states expanded


class Break(NamedTuple):
    """A rule that a move breaks, the configurations (as bits) in which the move breaks it, and a
    message."""

    rule: str
    message: str
    members: int


class Move(NamedTuple):
    """One move out of a state.

    Attributes:
        label: what happened. The labels of a path suffice to replay it.
        after: the state that the move leads to; None if the run ends there.
        members: the configurations that make the move, as bits.
        broken: the rules that it breaks, the most important first.
        progress: whether the move made progress. A cycle of moves without progress is a livelock.
    """

    label: Label
    after: Any
    members: int
    broken: tuple[Break, ...] = ()
    progress: bool = True


class StateSpace(Protocol):
    """A space of states to search."""

    def roots(self) -> Iterable[tuple[Any, int]]:
        """Return the initial states, each with the configurations that start in it."""

    def moves(self, state: Any, members: int) -> list[Move]:
        """Return every move out of the state that at least one of these configurations can make."""

    def key(self, state: Any) -> Hashable:
        """Return a key that is equal for states that behave alike, and only for those."""


class Violation(NamedTuple):
    """A broken rule, the configurations (as bits) that break it, and a path to it, which is a
    shortest one in a breadth-first search."""

    rule: str
    message: str
    members: int
    path: tuple[Label, ...]


class _Visit(NamedTuple):
    """A state to expand for some configurations. `number` counts the visits so far."""

    state: Any
    key: Hashable
    members: int
    number: int
    depth: int


@dataclass
class StateSearch:
    """A search that can be stopped between two reports and resumed.

    Attributes:
        order: breadth-first, depth-first, depth-first with a growing bound, or random walks.
        first_only: whether to stop at the first broken rule.
        deepest: the maximum number of moves on a path; None for no maximum.
        choose: for random walks, a function that returns a random number below its argument.
        walks: the number of random walks.
        known: the states reached, by key, with the configurations that reached them.
        transitions: the number of moves; a move that several configurations make counts once.
        depth: the number of moves on the longest path taken.
        cut: whether the search is incomplete: a path ended at the bound, or paths were only
            sampled.
        done: whether nothing is left to expand.
        violations: the broken rules, with each configuration at most once for each rule.
    """

    space: StateSpace
    order: Order = "breadth"
    first_only: bool = False
    deepest: int | None = None
    choose: Callable[[int], int] | None = None
    walks: int = 0
    known: dict[Hashable, int] = field(default_factory=dict)
    transitions: int = 0
    depth: int = 0
    cut: bool = False
    done: bool = False
    violations: list[Violation] = field(default_factory=list)
    _open: deque[_Visit] = field(default_factory=deque)
    _came_by: list[tuple[int, Label]] = field(default_factory=list)
    _broken: dict[str, int] = field(default_factory=dict)
    _depths: dict[Hashable, int] = field(default_factory=dict)
    _stalls: dict[Hashable, set[Hashable]] = field(default_factory=dict)
    _stalled: dict[Hashable, int] = field(default_factory=dict)
    _begun: bool = False
    _bound: int = 0

    @property
    def states(self) -> int:
        return len(self.known)

    @property
    def complete(self) -> bool:
        return self.done and not self.cut

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def livelocks(self) -> list[Hashable]:
        """Return a state on each cycle of moves without progress."""
        return cycles(self._stalls)

    def way_to(self, livelock: Hashable) -> tuple[Label, ...]:
        """Return the path to one of the states that `livelocks` returns."""
        return self._path(self._stalled[livelock])

    def states_by_member(self, count: int) -> list[int]:
        """Return the number of states that each of `count` configurations reached."""
        reached = [0] * count
        for members, states in Counter(self.known.values()).items():
            for member in range(count):
                reached[member] += states * (members >> member & 1)
        return reached

    def run(self) -> Iterator["StateSearch"]:
        """Search, and yield `self` every few states, so that the caller can stop in time."""
        if self.order == "random":
            yield from self._walk()
        elif self.order == "deepening":
            yield from self._deepen()
        else:
            yield from self._exhaust(self.deepest)
            self.done = not self._open

    def _exhaust(self, bound: int | None) -> Iterator["StateSearch"]:
        """Expand until nothing is left, or the first rule is broken."""
        if not self._begun:
            self._begun = True
            for state, members in self.space.roots():
                self._reach(state, members, None, (), 0)
        take = self._open.popleft if self.order == "breadth" else self._open.pop
        while self._open:
            for _ in range(BETWEEN_REPORTS):
                if not self._open or (self.first_only and self.violations):
                    break
                self._expand(take(), bound)
            yield self
            if self.first_only and self.violations:
                self._open.clear()
                self.cut = True

    def _deepen(self) -> Iterator["StateSearch"]:
        """Search depth-first, with a bound that grows by one.

        The paths to broken rules are as short as in a breadth-first search, but fewer states are
        open at once. The search is complete at the first bound that no path reaches.
        """
        while not self.done:
            if self._begun and not self._open and self._is_enough():
                self.done = True
                return
            if not self._open:
                self._bound += 1
                self.known.clear()
                self._depths.clear()
                self._came_by.clear()
                self._stalls.clear()
                self._stalled.clear()
                self.cut, self._begun = False, False
            yield from self._exhaust(self._bound)

    def _is_enough(self) -> bool:
        at_the_end = self.deepest is not None and self._bound >= self.deepest
        return not self.cut or at_the_end or (self.first_only and bool(self.violations))

    def _walk(self) -> Iterator["StateSearch"]:
        """Take random walks, each to its end. They can find broken rules, but cannot prove a
        rule."""
        assert self.choose is not None, "random walks need a source of randomness"
        self.cut = True
        roots = list(self.space.roots())
        for walk in range(self.walks):
            state, members = roots[self.choose(len(roots))]
            path: list[Label] = []
            while self.deepest is None or len(path) < self.deepest:
                moves = self.space.moves(state, members)
                if not moves:
                    break
                move = moves[self.choose(len(moves))]
                self.transitions += 1
                path.append(move.label)
                for broken in move.broken:
                    self._note(broken, tuple(path))
                if move.after is None or (self.first_only and self.violations):
                    break
                state, members = move.after, move.members
                key = self.space.key(state)
                self.known[key] = self.known.get(key, 0) | members
            self.depth = max(self.depth, len(path))
            if self.first_only and self.violations:
                break
            if walk % BETWEEN_REPORTS == 0:
                yield self
        self.done = True

    def _expand(self, visit: _Visit, bound: int | None) -> None:
        if bound is not None and visit.depth >= bound:
            self.cut = True
            return
        for move in self.space.moves(visit.state, visit.members):
            self.transitions += 1
            for broken in move.broken:
                self._note(broken, None, visit.number, move.label)
            if move.after is None:
                continue
            key = self._reach(move.after, move.members, visit.number, move.label, visit.depth + 1)
            if not move.progress:
                self._stalls.setdefault(visit.key, set()).add(key)
                self._stalled.setdefault(visit.key, visit.number)

    def _reach(
        self, state: Any, members: int, parent: int | None, label: Label, depth: int
    ) -> Hashable:
        key = self.space.key(state)
        self.depth = max(self.depth, depth)
        known = self.known.get(key, 0)
        if self.order == "deepening" and depth < self._depths.get(key, depth + 1):
            self._depths[key] = depth
            new = members
        else:
            new = members & ~known
        if not new:
            return key
        self.known[key] = known | new
        self._open.append(_Visit(state, key, new, len(self._came_by), depth))
        self._came_by.append((-1 if parent is None else parent, label))
        return key

    def _note(
        self, broken: Break, path: tuple[Label, ...] | None, number: int = 0, label: Label = ()
    ) -> None:
        fresh = broken.members & ~self._broken.get(broken.rule, 0)
        if not fresh:
            return
        self._broken[broken.rule] = self._broken.get(broken.rule, 0) | fresh
        if path is not None:
            self.violations.append(Violation(broken.rule, broken.message, fresh, path))
            return
        self.violations.append(
            Violation(broken.rule, broken.message, fresh, (*self._path(number), label))
        )

    def _path(self, number: int) -> tuple[Label, ...]:
        labels: list[Label] = []
        while number >= 0:
            number, label = self._came_by[number]
            labels.append(label)
        return tuple(reversed(labels[:-1]))


@cache
def numbers(members: int) -> tuple[int, ...]:
    return tuple(member for member in range(members.bit_length()) if members >> member & 1)


def cycles(edges: dict[Hashable, set[Hashable]]) -> list[Hashable]:
    """Return one node of each cycle that a depth-first search meets."""
    met: list[Hashable] = []
    finished: set[Hashable] = set()
    for start in edges:
        path: dict[Hashable, Iterator[Hashable]] = {}
        node: Hashable | None = start if start not in finished else None
        if node is not None:
            path[node] = iter(edges.get(node, ()))
        while path:
            current, ways = next(reversed(path.items()))
            ahead = next(ways, None)
            if ahead is None:
                finished.add(current)
                path.popitem()
            elif ahead in path:
                met.append(ahead)
            elif ahead not in finished:
                path[ahead] = iter(edges.get(ahead, ()))
    return met
