"""The graph of a small scope: the explorer's own states and moves, and paths that can be run."""

from dataclasses import replace as changed
from functools import partial

import pytest
from msgspec.structs import replace

from schedproof.gate.explore.explorer import chosen_rules, chosen_scopes
from schedproof.model.observation import Step
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.exploration.graph import draw_graph
from schedproof.spec.catalogue import load

MOST = 2_000


def asked(system, revision, scope, requests, limit):
    [found] = chosen_scopes([scope], system, revision)
    return ExploreOptions(revision, changed(found, requests=requests, limits=(limit,)))


SPYRE = asked("spyre", "documented", "lengths", 2, 6)
ABORTS = asked("spyre", "sound", "aborts", 1, 12)
VLLM = asked("vllm", "documented", "slots", 2, 4)


def graph_of(question, most=MOST):
    rules = chosen_rules(load(question.scope.system), None, question.revision)
    return draw_graph(question, rules, most)


@pytest.mark.slow
@pytest.mark.parametrize("question", [SPYRE, ABORTS, VLLM], ids=["spyre", "aborts", "vllm"])
def test_states_moves_and_rules_are_those_of_the_explorer(question):
    run = Exploration(question, chosen_rules(load(question.scope.system), None, question.revision))
    for _ in run.search.run():
        pass
    explored, graph = run.result(), graph_of(question)
    assert (len(graph.vertices), len(graph.edges)) == (explored.states, explored.transitions)
    assert max(vertex.depth for vertex in graph.vertices) <= explored.depth
    assert graph.result.exercised == explored.exercised
    assert graph.result.counterexamples == explored.counterexamples
    staked = {rule for edge in graph.edges for rule in edge.exercised}
    assert {rule for rule, limits in explored.exercised.items() if limits} >= staked
    broken = {violation.rule for edge in graph.edges for violation in edge.broken}
    assert broken == {counterexample.rule for counterexample in explored.counterexamples}
    assert (graph.beyond, graph.unopened) == (0, frozenset())


@pytest.mark.parametrize("question", [SPYRE, ABORTS, VLLM], ids=["spyre", "aborts", "vllm"])
def test_each_path_replays_on_the_model_to_the_step_that_its_state_shows(question):
    graph = graph_of(question)
    replayed = 0
    for number, vertex in list(enumerate(graph.vertices))[::3]:
        history = vertex.node.history
        if history.step == 0:
            continue
        scenario = graph.run.scenario(graph.labels(graph.path_to(number)))
        seen: list[Step] = []
        watch = partial(_keep, seen)
        replay(ModelTarget(), scenario, [], watch, history.step - 1)
        assert len(seen) == history.step
        assert history.last is not None
        # The explorer shows no promises of a pool without a bound: no request could break them.
        assert replace(seen[-1], reserved_blocks=None) == replace(
            history.last, reserved_blocks=None
        )
        replayed += 1
    assert replayed > 8


def _keep(seen, _, step):
    seen.append(step)


def test_a_path_is_a_chain_of_moves_from_the_start_and_none_is_shorter():
    graph = graph_of(SPYRE)
    nearest = {0: 0}
    for edge in graph.edges:  # in breadth-first order
        if edge.target is not None:
            nearest.setdefault(edge.target, nearest[edge.source] + 1)
    for number, vertex in enumerate(graph.vertices):
        place = 0
        for item in graph.path_to(number):
            assert graph.edges[item].source == place
            target = graph.edges[item].target
            assert target is not None
            place = target
        assert place == number
        assert vertex.depth == len(graph.path_to(number)) == nearest[number]


def test_the_shortest_path_to_a_break_is_the_explorer_s_counterexample():
    graph = graph_of(SPYRE)
    first = next(graph.breaking("SPY-R07"))
    labels = graph.labels(graph.path_through(first))
    [found] = [
        counterexample
        for counterexample in graph.result.counterexamples
        if counterexample.rule == "SPY-R07"
    ]
    assert graph.run.scenario(labels) == found.scenario
    depths = [
        graph.vertices[graph.edges[counterexample].source].depth
        for counterexample in graph.breaking("SPY-R07")
    ]
    assert depths == sorted(depths)
    assert list(graph.breaking("SPY-R09")) == []


@pytest.mark.slow
def test_beyond_the_bound_states_are_counted_and_not_kept():
    whole, cut = graph_of(SPYRE), graph_of(SPYRE, 100)
    assert len(cut.vertices) == 100
    assert cut.beyond > 0
    looked_at = {edge.source for edge in cut.edges}
    assert looked_at.isdisjoint(cut.unopened)
    assert not cut.result.complete
    assert [vertex.depth for vertex in cut.vertices] == [
        vertex.depth for vertex in whole.vertices[:100]
    ]
    assert any(edge.target is None and not edge.broken for edge in cut.edges)
