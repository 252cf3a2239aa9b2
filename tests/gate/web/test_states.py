"""The graph as the page has it: words, verdicts, and runs that a replay confirms."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schedproof.gate.explore.explorer import chosen_rules, chosen_scopes
from schedproof.gate.files.scenario_file import scenario_of
from schedproof.gate.web import states as drawing
from schedproof.gate.web.states import page_data, shown_run
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import ExploreOptions
from schedproof.solver.exploration.graph import draw_graph
from schedproof.spec.catalogue import load, select

RULES = chosen_rules(load("spyre"), None, "documented")
[LENGTHS] = chosen_scopes(["lengths"], "spyre", "documented")


@pytest.fixture(scope="module")
def graph():
    return draw_graph(
        ExploreOptions("documented", replace(LENGTHS, requests=2, limits=(6,))), RULES, 2_000
    )


@pytest.fixture(scope="module")
def data(graph):
    page: dict[str, Any] = json.loads(json.dumps(page_data(graph, list(RULES))))
    return page


@pytest.mark.slow
def test_it_counts_what_it_has(graph, data):
    states, moves = len(graph.vertices), len(graph.edges)
    assert (len(data["states"]), len(data["moves"])) == (states, moves)
    assert data["counted"] == f"{states:,} states, {moves:,} moves"
    assert data["cut"] is None
    places = {(state["depth"], state["row"]) for state in data["states"]}
    assert len(places) == states
    assert [number for number, state in enumerate(data["states"]) if state["first"] is None] == [0]


def test_the_run_of_a_state_replays_to_what_the_state_says(data):
    said = 0
    for state in data["states"][1::5]:
        scenario = scenario_of({**data["scenario"], "requests": state["scenario"]}, "page")
        steps = []
        if state["steps"]:
            last = state["steps"] - 1
            replay(ModelTarget(), scenario, [], lambda _, step, to=steps: to.append(step), last)
            assert len(steps) == state["steps"]
            assert state["tkv"] == steps[-1].tkv
            shown = dict(state["queues"])
            here = {name for members in shown.values() for name in members}
            assert [request for request in steps[-1].running if request in here] == shown["running"]
            if state["kind"] == "decode":
                [volume] = [measure for measure in state["measures"] if measure[0] == "batch × tkv"]
                assert volume == [
                    "batch × tkv",
                    len(steps[-1].scheduled) * steps[-1].tkv,
                    6,
                    "tokens",
                ]
                said += 1
        else:
            assert state["tkv"] is None
            assert set(dict(state["queues"])["waiting"]) == {name for name, _ in state["requests"]}
    assert said > 2


def test_a_broken_rule_has_the_shortest_run_that_breaks_it(data):
    found = {rule["id"]: rule for rule in data["rules"] if rule["verdict"] == "broken"}
    assert set(found) == {"SPY-R07", "SPY-R47"}
    broken = found["SPY-R07"]
    assert broken["command"] == f"schedproof replay {broken['file']} --rule SPY-R07"
    last = data["moves"][broken["path"][-1]]
    assert last["broken"] == [["SPY-R07", broken["message"]]]
    outcome = replay(
        ModelTarget(),
        scenario_of(json.loads(broken["scenario"]), "page"),
        select(RULES, ["SPY-R07"]),
    )
    assert [failure.message for failure in outcome.broken] == [broken["message"]]
    assert f"step {outcome.broken[0].step:>5}" in last["answer"]


def test_a_rule_at_stake_has_a_run_in_whose_last_step_its_witness_occurs(data):
    staked = [row for row in data["rules"] if row["verdict"] == "exercised"]
    assert len(staked) > 15
    for reported in staked:
        [rule] = select(RULES, [reported["id"]])
        scenario = scenario_of(json.loads(reported["scenario"]), "page")
        steps = sum(data["moves"][move]["does"].startswith("step") for move in reported["path"])
        before = replay(ModelTarget(), scenario, [rule], last_step=steps - 2) if steps > 1 else None
        after = replay(ModelTarget(), scenario, [rule], last_step=steps - 1)
        assert not after.broken
        assert after.exercised[rule.id] > (before.exercised[rule.id] if before else 0), rule.id


def test_what_is_never_at_stake_has_no_run_and_says_so(graph, data):
    idle = [row for row in data["rules"] if row["verdict"] == "not exercised"]
    assert "SPY-R36" in {row["id"] for row in idle}
    assert all(row["path"] is None and "scenario" not in row for row in idle)
    [rule] = select(RULES, ["SPY-R36"])
    assert shown_run(graph, rule) is None


def test_moves_are_told_in_the_words_of_clients(data):
    words = {move["does"] for move in data["moves"]}
    assert {"r0 arrives", "r1 arrives", "step", "step; r0 ends early (EOS)"} <= words
    assert "r0 is read: prompt 2, max_tokens 1 to 5 (not read yet)" in words
    assert any(
        "left padding 1 block" in request[1] for s in data["states"] for request in s["requests"]
    )


def test_clients_that_give_up_are_moves_too():
    [scope] = chosen_scopes(["aborts"], "spyre", "documented")
    options = ExploreOptions("documented", replace(scope, requests=1, limits=(12,)))
    moves = page_data(draw_graph(options, RULES, 2_000), list(RULES))["moves"]
    words = {move["does"] for move in moves}
    assert "step; r0 is aborted inside the step" in words
    assert "step; r0 is aborted before the step" in words


def test_what_is_cut_says_so_and_has_no_moves():
    options = ExploreOptions("documented", replace(LENGTHS, requests=2, limits=(6,)))
    page = page_data(draw_graph(options, RULES, 50), list(RULES))
    assert page["cut"].startswith("cut: the first 50 states are drawn, at least ")
    unopened = {number for number, state in enumerate(page["states"]) if state.get("unopened")}
    assert unopened.isdisjoint(move["from"] for move in page["moves"])
    assert any(move["to"] is None for move in page["moves"])


def test_a_length_that_the_configuration_refuses_is_no_length_of_a_request():
    """At limit 6 the door takes no prompt of 7 tokens, which the menu has."""
    rules = chosen_rules(load("spyre"), None, "sound")
    [scope] = chosen_scopes(["sequential"], "spyre", "sound")
    graph = draw_graph(ExploreOptions("sound", replace(scope, requests=2, limits=(6,))), rules, 200)
    page = page_data(graph, list(rules))
    staked = [rule for rule in page["rules"] if rule["verdict"] == "exercised"]
    assert len(staked) > 15
    assert all(rule["path"] for rule in staked)
    said = [words for state in page["states"] for _, words in state["requests"]]
    assert any("prompt 1 to 4 (not read yet)" in words for words in said)
    assert not any("to 7 (not read yet" in words for words in said)


SMALL = ["--revision", "documented", "--scope", "lengths", "--requests", "2", "--limits", "6"]
PAGE = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)

pytestmark = pytest.mark.usefixtures("working_folder")


@pytest.mark.slow
def test_the_page_is_one_file_and_its_run_replays_to_the_same_break(run):
    result = run("explore", *SMALL, "--rule", "SPY-R07,SPY-R09", "--html", "states.html")
    assert (result.code, result.err) == (1, ""), result
    assert result.out.endswith("page: states.html\n")
    assert "BROKEN        SPY-R07" in result.out
    page = Path("states.html").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:src|href)=[\"']?([^\"' >]*)", page)) == {"data:,"}
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    [found] = PAGE.findall(page)
    data = json.loads(found)
    assert f"{len(data['states'])} states, {len(data['moves']):,} transitions" in result.out
    [broken] = [rule for rule in data["rules"] if rule["verdict"] == "broken"]
    Path(broken["file"]).write_text(broken["scenario"], encoding="utf-8")
    again = run(*broken["command"].split()[1:])
    assert again.code == 1
    assert "BROKEN SPY-R07" in again.out
    assert (Path("schedproof-out") / broken["file"]).read_text() == broken["scenario"]


def test_too_many_states_are_cut_with_a_line_and_no_verdict(run, monkeypatch):
    monkeypatch.setattr(drawing, "MAX_STATES", 60)
    result = run("explore", *SMALL, "--rule", "SPY-R09", "--html", "states.html")
    assert result.code == 3, result
    cut = "cut: the first 60 states are drawn, at least "
    assert f"left out, {cut}" in result.out
    assert cut in Path("states.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scope", "lengths"], "--html: draws a single limit, but scope lengths has 35; choose"),
        (["--limits", "6"], "--html: draws a single scope, not "),
        (
            [*SMALL, "--order", "depth"],
            "--html: does not work with --order depth; valid: --order breadth",
        ),
        ([*SMALL, "--checkpoint", "later"], "--html: not valid together with --checkpoint"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_exit_2(run, monkeypatch, words, message):
    monkeypatch.setattr(drawing, "drawn", lambda *_: pytest.fail("it explores"))
    result = run("explore", *words, "--html", "states.html")
    assert (result.code, result.out) == (2, ""), result
    assert result.err.startswith(f"schedproof: {message}")
    assert result.err.count("\n") == 1
    assert not Path("states.html").exists()


def test_a_file_that_cannot_be_written_is_noticed_before(run):
    result = run("explore", *SMALL, "--html", "nowhere/states.html")
    assert (result.code, result.out) == (2, "")
    assert "--html: nowhere/states.html: the folder nowhere does not exist" in result.err
