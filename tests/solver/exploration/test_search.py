"""StateSearch on graphs small enough to know: what it covers, finds and must not claim."""

from random import Random

import pytest

from schedproof.solver.exploration.search import Break, Move, StateSearch, cycles


class Graph:
    """A space given by its edges: node -> (label, node) pairs; `bad` labels break rule X."""

    def __init__(self, edges, bad=(), stalls=(), members=None):
        self.edges, self.bad, self.stalls = edges, bad, stalls
        self.members = members or {}

    def roots(self):
        return [("start", 0b11)]

    def moves(self, state, members):
        moves = []
        for label, after in self.edges.get(state, ()):
            taken = members & self.members.get(label, 0b11)
            if taken:
                broken = (Break("X", f"by {label}", taken),) if label in self.bad else ()
                moves.append(Move((label,), after, taken, broken, label not in self.stalls))
        return moves

    def key(self, state):
        return state


DIAMOND = {
    "start": [("a", "left"), ("b", "right")],
    "left": [("c", "end"), ("long", "detour")],
    "right": [("d", "end")],
    "detour": [("e", "late")],
    "end": [("f", "late")],
}


def explored(graph, order="breadth", **options):
    exploration = StateSearch(graph, order, **options)
    for _ in exploration.run():
        pass
    return exploration


@pytest.mark.parametrize("order", ["breadth", "depth", "deepening"])
def test_every_state_is_reached_once(order):
    exploration = explored(Graph(DIAMOND), order)
    assert exploration.complete
    assert exploration.states == 6
    assert exploration.states_by_member(2) == [6, 6]


def test_each_move_is_counted_once():
    assert explored(Graph(DIAMOND)).transitions == 7
    assert explored(Graph(DIAMOND), "depth").transitions == 7


@pytest.mark.parametrize("order", ["breadth", "deepening"])
def test_the_first_counterexample_is_the_shortest(order):
    graph = Graph(DIAMOND | {"late": [("bad", "over")]}, bad=("bad",))
    exploration = explored(graph, order, first_only=True)
    assert [found.rule for found in exploration.violations] == ["X"]
    assert len(exploration.violations[0].path) == 4
    assert exploration.violations[0].path[-1] == ("bad",)


def test_a_search_that_ends_with_the_first_broken_rule_does_not_claim_to_be_complete():
    exploration = explored(Graph(DIAMOND, bad=("a",)), first_only=True)
    assert exploration.violations
    assert not exploration.complete


def test_a_path_that_is_cut_is_not_complete():
    exploration = explored(Graph(DIAMOND), deepest=2)
    assert not exploration.complete
    assert exploration.cut
    assert exploration.states == 5


def test_random_walks_find_and_never_prove():
    exploration = explored(
        Graph(DIAMOND, bad=("f",)), "random", choose=Random(0).randrange, walks=50
    )
    assert [found.path[-1] for found in exploration.violations] == [("f",)]
    assert exploration.states > 3
    assert not exploration.complete


def test_random_walks_need_a_source_of_randomness():
    with pytest.raises(AssertionError, match="randomness"):
        explored(Graph(DIAMOND), "random", walks=1)


def test_configurations_that_part_are_counted_apart():
    graph = Graph(DIAMOND, members={"a": 0b01, "b": 0b10})
    exploration = explored(graph)
    assert exploration.states == 6
    # "left" and "detour" belong to the first alone, "right" to the second.
    assert exploration.states_by_member(2) == [5, 4]


def test_what_breaks_in_one_configuration_only_is_said_of_that_one():
    graph = Graph(DIAMOND, bad=("d",), members={"a": 0b01, "b": 0b10})
    [found] = explored(graph).violations
    assert found.members == 0b10
    assert found.path == (("b",), ("d",))


def test_each_configuration_has_its_own_first_counterexample():
    edges = {"start": [("a", "x"), ("b", "y")], "x": [("bad", "z")], "y": [("c", "x")]}
    graph = Graph(edges, bad=("bad",), members={"a": 0b01, "b": 0b10})
    found = explored(graph).violations
    assert [(request.members, len(request.path)) for request in found] == [(0b01, 2), (0b10, 3)]


def test_a_cycle_without_progress_is_a_livelock():
    edges = {"start": [("go", "x")], "x": [("wait", "y")], "y": [("idle", "x"), ("f", "end")]}
    assert explored(Graph(edges, stalls=("wait", "idle"))).livelocks
    assert not explored(Graph(edges, stalls=("wait",))).livelocks
    assert not explored(Graph(edges)).livelocks


def test_the_way_to_a_livelock_is_told():
    edges = {"start": [("go", "x")], "x": [("wait", "y")], "y": [("idle", "x")]}
    for order in ("breadth", "deepening"):
        exploration = explored(Graph(edges, stalls=("wait", "idle")), order)
        [state] = exploration.livelocks
        assert exploration.way_to(state) == {"x": (("go",),), "y": (("go",), ("wait",))}[state]


def test_a_state_that_stays_as_it_is_without_progress_is_a_livelock():
    assert explored(Graph({"start": [("idle", "start")]}, stalls=("idle",))).livelocks == ["start"]


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}}, 0),
        ({"a": {"b"}, "b": {"a"}}, 1),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, 0),
        ({"a": {"a"}, "b": {"b"}}, 2),
    ],
)
def test_cycles_are_found_and_diamonds_are_none(edges, expected):
    assert len(cycles(edges)) == expected


@pytest.mark.parametrize("order", ["breadth", "depth", "deepening"])
def test_what_was_broken_off_goes_on_to_the_same_end(order):
    chain = {n: [("step", n + 1), ("jump", n + 2)] for n in range(400)}
    graph = Graph({"start": [("in", 0)], **chain}, bad=("never",))
    whole = explored(graph, order, deepest=60 if order == "deepening" else None)
    parts = StateSearch(graph, order, deepest=60 if order == "deepening" else None)
    rounds = 0
    while not parts.done:
        for _ in parts.run():
            rounds += 1
            break  # as Ctrl-C would
        else:
            break
    assert rounds > 3
    assert (parts.states, parts.transitions, parts.complete) == (
        whole.states,
        whole.transitions,
        whole.complete,
    )
