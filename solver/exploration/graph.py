"""The graph of a small scope, for drawing: its states, and the moves between them.

The graph is built by an ordinary exploration in a space that records its moves. The search is
breadth-first, so the move that first reaches a state is the end of a shortest path to it.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...model.observation import Step
from ...spec.catalogue import Rule
from .exploration import Exploration, ExplorationResult, ExploreOptions
from .scheduler_space import Node, SchedulerSpace
from .search import Break, Label, Move

Staked = tuple[Move, frozenset[str]]


class Vertex(NamedTuple):
    """A state, its distance from the start in moves, and the edge that first reached it (None for
    the start)."""

    node: Node
    depth: int
    first: int | None


class Edge(NamedTuple):
    """A move.

    Attributes:
        target: the number of the state that follows; None if the scheduler crashed, or if the state
            exceeds the bound.
        step: the scheduler's step; None if only clients act.
        broken: the rules that the move breaks, the most important first.
        exercised: the rules whose witness occurs in the move.
    """

    source: int
    target: int | None
    label: Label
    step: Step | None
    broken: tuple[Break, ...]
    exercised: frozenset[str]


@dataclass(frozen=True)
class Graph:
    """The explored states and moves of one configuration. States are in the order in which they
    were reached.

    Attributes:
        beyond: the number of states that were reached but not kept.
        unopened: the states that were kept but not expanded.
    """

    run: Exploration
    result: ExplorationResult
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    beyond: int
    unopened: frozenset[int]

    def path_to(self, vertex: int) -> list[int]:
        path: list[int] = []
        first = self.vertices[vertex].first
        while first is not None:
            path.append(first)
            first = self.vertices[self.edges[first].source].first
        return path[::-1]

    def path_through(self, edge: int) -> list[int]:
        return [*self.path_to(self.edges[edge].source), edge]

    def labels(self, path: Sequence[int]) -> tuple[Label, ...]:
        """Return the labels of a path, from which `exploration.scenario_of` makes a scenario."""
        return tuple(self.edges[number].label for number in path)

    def breaking(self, rule: str) -> Iterator[int]:
        """Return the edges that break a rule, those on the shortest paths first."""
        return self._nearest(
            number
            for number, edge in enumerate(self.edges)
            if rule in {broken.rule for broken in edge.broken}
        )

    def staking(self, rule: str) -> Iterator[int]:
        """Return the edges in which a rule's witness occurs, those on the shortest paths first."""
        return self._nearest(
            number for number, edge in enumerate(self.edges) if rule in edge.exercised
        )

    def _nearest(self, edges: Iterator[int]) -> Iterator[int]:
        return iter(
            sorted(edges, key=lambda number: self.vertices[self.edges[number].source].depth)
        )


class WatchedSpace(SchedulerSpace):
    """A space that records its moves, and the rules that each move exercises."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.opened: dict[Hashable, list[Staked]] = {}
        self._staked: dict[Label, frozenset[str]] = {}

    def moves(self, node: Node, members: int) -> list[Move]:
        self._staked = {}
        moves = super().moves(node, members)
        self.opened[self.key(node)] = [
            (move, self._staked.get(move.label, frozenset())) for move in moves
        ]
        return moves

    def _taken(self, *args: Any) -> Move | None:
        """Record which rules this move exercises. The base class records only the first such move
        for each rule."""
        so_far, self.exercised = self.exercised, dict.fromkeys(self.exercised, 0)
        try:
            move = super()._taken(*args)
        finally:
            in_move, self.exercised = self.exercised, so_far
        for rule, members in in_move.items():
            self.exercised[rule] |= members
        if move is not None:
            self._staked[move.label] = frozenset(rule for rule, bits in in_move.items() if bits)
        return move


def draw_graph(options: ExploreOptions, rules: Sequence[Rule], most: int) -> Graph:
    assert len(options.scope.limits) == 1, options.scope.limits
    assert options.order == "breadth", options.order
    run = Exploration(options, rules, space=WatchedSpace)
    space = run.search.space
    assert isinstance(space, WatchedSpace)
    for state in run.search.run():
        if state.states > most:
            break
    [(root, _)] = space.roots()
    numbers: dict[Hashable, int] = {space.key(root): 0}
    vertices: list[Vertex] = [Vertex(root, 0, None)]
    edges: list[Edge] = []
    beyond: set[Hashable] = set()
    for key, moves in space.opened.items():
        if key not in numbers:
            continue
        source = numbers[key]
        for move, exercised in moves:
            target = None
            if move.after is not None:
                key_after = space.key(move.after)
                if key_after not in numbers and len(vertices) < most:
                    numbers[key_after] = len(vertices)
                    vertices.append(Vertex(move.after, vertices[source].depth + 1, len(edges)))
                target = numbers.get(key_after)
                if target is None:
                    beyond.add(key_after)
            is_answered = move.after is not None and move.label[0] == "step"
            step = move.after.history.last if is_answered else None
            edges.append(Edge(source, target, move.label, step, move.broken, exercised))
    unopened = frozenset(number for key, number in numbers.items() if key not in space.opened)
    return Graph(run, run.result(), tuple(vertices), tuple(edges), len(beyond), unopened)
