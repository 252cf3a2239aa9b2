"""`schedproof explore --html`: render the states of a small scope as a page. It shows moves and
rules in words, and runs that lead to the states."""

import shlex
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.target import ModelTarget
from ...properties.checking.replay import replay
from ...properties.explanations.measures import measures
from ...solver.exploration.exploration import ExploreOptions
from ...solver.exploration.graph import Edge, Graph, Vertex, draw_graph
from ...solver.exploration.scheduler_space import Node
from ...solver.exploration.search import Label
from ...solver.exploration.undecided import Candidates
from ...solver.systems import space_of
from ...spec.catalogue import Rule
from ..console.option_checks import check_file
from ..console.output import config_line
from ..console.step_lines import step_line
from ..explore.explorer import Ended, memory_mb
from ..explore.report import Reporter
from ..files.disk import write
from ..files.scenario_file import file_name, scenario_json, with_rule
from ..targets.target_spec import MODEL, STEP_LIMIT, replay_options
from .base.page import render_page
from .base.words import progress, queues

MAX_STATES = 2_000


def check_drawing(html: Path, options: Sequence[ExploreOptions], checkpoint: Path | None) -> None:
    """Raise InputError unless the options describe a single drawing. Call this before doing any
    work."""
    check_file("--html", html)
    if len(options) > 1:
        raise InputError(
            "--html", f"draws a single scope, not {len(options)}; choose one with --scope"
        )
    scope = options[0].scope
    if len(scope.limits) > 1:
        raise InputError(
            "--html",
            f"draws a single limit, but scope {scope.name} has {len(scope.limits)}; choose one, "
            f"for example --limits {scope.limits[0]}",
        )
    if options[0].order != "breadth":
        raise InputError(
            "--html", f"does not work with --order {options[0].order}; valid: --order breadth"
        )
    if checkpoint is not None:
        raise InputError(
            "--html",
            "not valid together with --checkpoint, which is not needed: a drawing takes "
            "little time",
        )


def draw(
    console: Console,
    options: ExploreOptions,
    rules: Sequence[Rule],
    chosen: bool,
    out: Path,
    json_file: Path | None,
    html: Path,
) -> int:
    """Explore, report as usual, and write the page. Return the exit code."""
    began = time.monotonic()
    reporter = Reporter(console, [options], rules, out)
    graph = draw_graph(options, rules, MAX_STATES)
    cut = cut_line(graph)
    why = "" if graph.result.complete else cut or "paths were cut"
    reporter(Ended(graph.result, why, time.monotonic() - began, memory_mb()))
    page = render_page("graph", page_data(graph, list(rules)))
    write(html, page.encode())
    code = reporter.conclude(chosen, json_file)
    console.print(f"page: {html}", markup=False)
    return code


MAX_TRIED = 300  # how many runs to try for a rule at most


class Shown(NamedTuple):
    """The shortest run for a rule, confirmed by a replay on the model.

    If `broken` is set, the run breaks the rule. If not, one of its steps exercises the rule. `path`
    lists the edges of the run, and `message` gives the numbers.
    """

    path: tuple[int, ...]
    scenario: Scenario
    broken: bool
    message: str


def page_data(graph: Graph, rules: list[Rule]) -> dict[str, Any]:
    options, explored = graph.run.options, graph.result
    scope = options.scope
    start = graph.run.scenario(())
    rows = _rows(graph)
    return {
        "title": (
            f"{scope.system} {options.revision}: {scope.name}, {scope.requests} requests, "
            f"{space_of(scope.system).limit_name} {scope.limits[0]}"
        ),
        "says": scope.says,
        "config": config_line(scope.system, options.revision, start.config),
        "counted": f"{explored.states:,} states, {explored.transitions:,} moves",
        "cut": cut_line(graph),
        "reduced": options.reduced,
        "scenario": _plain(start, "requests"),
        "states": [
            _state(graph, number, vertex, rows[number])
            for number, vertex in enumerate(graph.vertices)
        ],
        "moves": [_move(graph, edge) for edge in graph.edges],
        "rules": [_rule(graph, rule) for rule in rules if rule.id in explored.checked],
    }


def cut_line(graph: Graph) -> str | None:
    if not graph.beyond and not graph.unopened:
        return None
    parts = [f"cut: the first {len(graph.vertices):,} states are drawn"]
    if graph.beyond:
        parts.append(f"at least {graph.beyond:,} more states are not")
    if graph.unopened:
        parts.append(f"the moves out of {len(graph.unopened):,} states were not explored")
    return ", ".join(parts)


def _rows(graph: Graph) -> list[int]:
    taken: dict[int, int] = {}
    rows = []
    for vertex in graph.vertices:
        rows.append(taken.get(vertex.depth, 0))
        taken[vertex.depth] = rows[-1] + 1
    return rows


def _state(graph: Graph, number: int, vertex: Vertex, row: int) -> dict[str, Any]:
    node, history = vertex.node, vertex.node.history
    came_by = None if vertex.first is None else graph.edges[vertex.first]
    kind = "clients" if came_by is None or came_by.step is None else came_by.step.kind
    state: dict[str, Any] = {
        "depth": vertex.depth,
        "row": row,
        "kind": kind,
        "first": vertex.first,
        "steps": history.step,
        "queues": [[name, members] for name, members in queues(history).items()],
        "requests": [
            [name, f"{_lengths(node, name)}, {progress(history, name)}"] for name in node.known
        ],
        "tkv": history.last.tkv if history.last is not None else None,
        "measures": [[*measure] for measure in measures(history.last, history.config)],
    }
    if number in graph.unopened:
        state["unopened"] = True
    if number:
        labels = graph.labels(graph.path_to(number))
        state["scenario"] = _plain(graph.run.scenario(labels), "requests", keep=True)
    return state


def _lengths(node: Node, request: str) -> str:
    """Describe the lengths of a request. A length that the scheduler has not read yet is a
    range."""
    candidates: Any = node.known[request]
    items = [candidates.menu.items[number] for number in possible_items(candidates)]

    def reported(values: set[int]) -> str:
        least, most = min(values), max(values)
        return f"{least}" if least == most else f"{least} to {most} (not read yet)"

    return (
        f"prompt {reported({sent.prompt_len for sent in items})}, "
        f"max_tokens {reported({sent.max_tokens for sent in items})}"
    )


def _move(graph: Graph, edge: Edge) -> dict[str, Any]:
    move: dict[str, Any] = {"from": edge.source, "to": edge.target, "does": _does(graph, edge)}
    if edge.step is not None:
        before = graph.vertices[edge.source].node.history
        move["answer"] = step_line(before.step, edge.step, before.last, before.config)
    if edge.broken:
        move["broken"] = [[failure.rule, failure.message] for failure in edge.broken]
    return move


def _does(graph: Graph, edge: Edge) -> str:
    kind, *rest = edge.label
    if kind == "arrive":
        return f"{rest[0]} arrives"
    if kind == "give up":
        return f"{rest[0]} is aborted"
    if kind == "choose":
        source = graph.vertices[edge.source].node
        return f"{rest[0]} is read: {_chosen(source, edge.label)}"
    given_up, tokens = rest
    parts = []
    if given_up is not None:
        parts.append(f"{given_up[0]} is aborted {'inside' if given_up[1] else 'before'} the step")
    history = graph.vertices[edge.source].node.history
    for name, bits, ending in tokens:
        if ending:
            candidates = graph.vertices[edge.source].node.known[name].menu.candidates(bits)
            early = candidates.max_tokens != history.live[name].emitted + 1
            parts.append(f"{name} ends{' early (EOS)' if early else ''}")
    return "; ".join(["step", *parts])


def _chosen(node: Node, label: Label) -> str:
    _, name, bits = label
    menu = node.known[name].menu
    return _lengths(node._replace(known={name: menu.candidates(bits)}), name)


def _rule(graph: Graph, rule: Rule) -> dict[str, Any]:
    shown = shown_run(graph, rule)
    broken = rule.id in {counterexample.rule for counterexample in graph.result.counterexamples}
    reported: dict[str, Any] = {
        "id": rule.id,
        "title": rule.title,
        "says": rule.statement,
        "source": rule.source,
        "witness": rule.witness,
        "verdict": _verdict(graph, rule, shown, broken),
        "path": None,
    }
    if shown is not None:
        file = file_name(shown.scenario, rule.id)
        options = replay_options(MODEL, [rule.id], STEP_LIMIT)
        reported |= {
            "path": shown.path,
            "message": shown.message,
            "file": file,
            "scenario": scenario_json(with_rule(shown.scenario, rule.id)),
            "command": f"schedproof replay {shlex.quote(file)}{options}",
        }
    return reported


def _verdict(graph: Graph, rule: Rule, shown: Shown | None, broken: bool) -> str:
    if broken:
        return "broken" if shown is not None and shown.broken else "doubtful"
    return "exercised" if graph.result.exercised.get(rule.id) else "not exercised"


def _plain(scenario: Scenario, field: str, *, keep: bool = False) -> Any:
    data = msgspec.json.decode(scenario_json(scenario)) if scenario.requests else None
    if data is None:
        data = {k: v for k, v in msgspec.to_builtins(scenario).items() if v is not None}
    return data[field] if keep else {k: v for k, v in data.items() if k != field}


def shown_run(graph: Graph, rule: Rule) -> Shown | None:
    return _broken_run(graph, rule) or _staked_run(graph, rule)


def steps_of(labels: Sequence[Label]) -> int:
    return sum(label[0] == "step" for label in labels)


def _broken_run(graph: Graph, rule: Rule) -> Shown | None:
    for edge in islice(graph.breaking(rule.id), MAX_TRIED):
        path = graph.path_through(edge)
        labels = graph.labels(path)
        scenario = graph.run.scenario(labels)
        outcome = replay(ModelTarget(), scenario, [rule], last_step=steps_of(labels) - 1)
        if outcome.broken:
            return Shown(tuple(path), scenario, True, outcome.broken[0].message)
    # The rule is broken by a cycle without progress, not by a single move.
    for counterexample in graph.result.counterexamples:
        if counterexample.rule == rule.id:
            outcome = replay(ModelTarget(), counterexample.scenario, [rule])
            if outcome.broken:
                return Shown((), counterexample.scenario, True, outcome.broken[0].message)
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
    """Yield the path. If the scheduler never read the length of some request, also yield the path
    with each possible length, because the rule's witness may depend on the length."""
    labels = graph.labels(graph.path_through(edge))
    yield labels
    target = graph.edges[edge].target
    if target is not None:
        for name, candidates in graph.vertices[target].node.known.items():
            accepted = possible_items(candidates)
            for number in accepted if len(accepted) > 1 else ():
                yield (*labels, ("choose", name, 1 << number))


def possible_items(candidates: Candidates) -> list[int]:
    """Return the items of the request menu that are still possible for a request."""
    return [number for number in candidates.numbers() if candidates.menu.accepted[number]]
