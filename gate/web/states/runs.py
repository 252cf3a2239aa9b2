"""Runs of a graph that are worth showing: to a broken rule, and to one that is exercised."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ....model.scenario import Scenario
from ....model.target import ModelTarget
from ....properties.checking.replay import replay
from ....solver.exploration.graph import Graph
from ....solver.exploration.search import Label
from ....solver.exploration.undecided import Candidates
from ....spec.catalogue import Rule

MAX_TRIED = 300  # runs for one rule


class Shown(NamedTuple):
    """A shortest run for a rule that a replay on the model confirms: the edges of its path.

    `broken` tells a break from a step in which the rule is exercised; `message` has its numbers.
    """

    path: tuple[int, ...]
    scenario: Scenario
    broken: bool
    message: str


def shown_run(graph: Graph, rule: Rule) -> Shown | None:
    """The shortest confirmed run that breaks the rule, or puts it exercised; None without one."""
    return _broken_run(graph, rule) or _staked_run(graph, rule)


def steps_of(labels: Sequence[Label]) -> int:
    """Steps that a path takes."""
    return sum(label[0] == "step" for label in labels)


def _broken_run(graph: Graph, rule: Rule) -> Shown | None:
    for edge in islice(graph.breaking(rule.id), MAX_TRIED):
        path = graph.path_through(edge)
        labels = graph.labels(path)
        scenario = graph.run.scenario(labels)
        outcome = replay(ModelTarget(), scenario, [rule], last_step=steps_of(labels) - 1)
        if outcome.broken:
            return Shown(tuple(path), scenario, True, outcome.broken[0].message)
    for (
        one
    ) in graph.result.counterexamples:  # a circle without progress: no single move breaks the rule
        if one.rule == rule.id:
            outcome = replay(ModelTarget(), one.scenario, [rule])
            if outcome.broken:
                return Shown((), one.scenario, True, outcome.broken[0].message)
    return None


def _staked_run(graph: Graph, rule: Rule) -> Shown | None:
    tried = ((edge, labels) for edge in graph.staking(rule.id) for labels in _decided(graph, edge))
    for edge, labels in islice(tried, MAX_TRIED):
        scenario = graph.run.scenario(labels)
        last = steps_of(labels) - 1
        before = replay(ModelTarget(), scenario, [rule], last_step=last - 1) if last else None
        outcome = replay(ModelTarget(), scenario, [rule], last_step=last)
        if outcome.exercised[rule.id] > (before.exercised[rule.id] if before else 0):
            return Shown(tuple(graph.path_through(edge)), scenario, False, "")
    return None


def _decided(graph: Graph, edge: int) -> Iterator[tuple[Label, ...]]:
    """The path as it is, then with each length for a request whose lengths were not read: the
    rule's witness may ask for one of them."""
    labels = graph.labels(graph.path_through(edge))
    yield labels
    target = graph.edges[edge].target
    if target is not None:
        for name, candidates in graph.vertices[target].node.known.items():
            accepted = possible(candidates)
            for number in accepted if len(accepted) > 1 else ():
                yield (*labels, ("choose", name, 1 << number))


def possible(candidates: Candidates) -> list[int]:
    """The items that a request may still be and that the configuration takes at the door."""
    return [one for one in candidates.numbers() if candidates.menu.accepted[one]]
