"""Sessions in a run: how they are judged, drawn, written and shrunk."""

import json

import pytest
from msgspec.structs import replace

from schedproof.gate.files.scenario_file import FileError, scenario_json, scenario_of
from schedproof.model.scenario import Request, Scenario, Turn
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.properties.shrinking.shrink import shrink, simpler_requests
from schedproof.spec.catalogue import load

SMALL = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32}
RULES = [rule for rule in load("vllm", "0.33") if rule.checked]


def turn(name, delay=0, tokens=3, **changes):
    return Turn(prompt=((name, tokens),), delay=delay, **{"max_tokens": 2, **changes})


def session(name, *turns, tokens=6, arrival=0):
    prompt = ((name, tokens),)
    return Request(id=name, arrival=arrival, prompt=prompt, max_tokens=2, turns=turns)


def scenario(*requests, revision="0.33", **changes):
    config = full_config("vllm", revision, {**SMALL, "streaming_inputs": True, **changes})
    return Scenario(system="vllm", revision=revision, config=config, requests=requests)


def judged(run, target=None):
    rules = [rule for rule in load("vllm", run.revision) if rule.checked]
    return replay(target or ModelTarget(), run, rules)


class Changed(ModelTarget):
    """A target that sees other turns than the scenario has."""

    def __init__(self, changes):
        super().__init__()
        self.changes = changes

    def add(self, request):
        turns = [{**each, **self.changes} for each in request.get("turns", [])]
        return super().add({**request, "turns": turns})


@pytest.mark.parametrize("revision", ["documented", "0.30", "0.33"])
def test_the_model_keeps_every_rule_with_sessions(revision):
    sessions = (
        session("a", turn("b", 3), turn("c", None)),
        session("d", turn("e", None), turn("f")),
        session("g", turn("h", 5)),
        session("z"),
    )
    outcome = judged(scenario(*sessions, revision=revision))
    assert (outcome.broken, outcome.finished) == ([], True)
    assert {"V1-R44", "V1-R45", "V1-R46", "V1-R47"} <= outcome.exercised.keys()


def test_a_rule_about_phases_is_asked_once_a_turn_has_ended():
    run = scenario(session("a", turn("b", 3)))
    rules = [rule for rule in RULES if rule.id == "V1-I1"]
    ends = [replay(ModelTarget(), run, rules, last_step=last) for last in range(4)]
    histories = [end.session.monitor.history for end in ends]
    between = [history.requests["a"].between_turns for history in histories]
    first = between.index(True)
    assert first > 0
    assert histories[first].moves > histories[first - 1].moves
    assert histories[first].decoding() == []


def test_a_long_wait_for_an_input_is_no_lack_of_progress():
    assert judged(scenario(session("a", turn("b", 200)))).broken == []


def test_a_session_that_runs_before_its_input_is_named():
    [first, *_] = judged(scenario(session("a", turn("b", 3))), Changed({"delay": 1})).broken
    assert (first.rule, first.message) == ("V1-R44", "a scheduled 2 steps before its next input")


def test_an_input_that_is_lost_is_named():
    [first, *_] = judged(scenario(session("a", turn("b", 1))), Changed({"delay": 99})).broken
    assert first.rule == "V1-R07"


def test_a_turn_that_computes_more_than_its_input_is_named():
    [first, *_] = judged(scenario(session("a", turn("b"))), Changed({"prompt": [["b", 4]]})).broken
    assert first.rule == "V1-R02"


def test_a_session_that_ends_before_its_last_turn_is_named():
    class Ends(ModelTarget):
        def add(self, request):
            return super().add({**request, "turns": []})

    [first, *_] = judged(scenario(session("a", turn("b"))), Ends()).broken
    assert first.rule == "ALL-R04"
    assert first.message == "a finished (length) before its last turn"


def test_a_turn_has_its_own_max_tokens():
    run = scenario(session("a", turn("b", max_tokens=4)))
    [first, *_] = judged(run, Changed({"max_tokens": 2})).broken
    assert first.rule == "ALL-R04"


def test_a_search_draws_sessions_that_wait_and_keeps_every_rule():
    drawn = []
    fixed = {"streaming_inputs": True, "policy": "fcfs"}
    options = SearchOptions(ModelTarget(), "vllm", "0.33", RULES, "small", fixed=fixed)
    hooks = Hooks(ended=lambda run: drawn.extend(item for r in run.requests for item in r.turns))
    search = Search(options, hooks)
    assert not run_search(search, 30, 0, 0)
    assert {each.delay for each in drawn} > {None, 0}
    assert search.exercised["V1-R47"]


def test_shrinking_leaves_out_turns_that_are_not_needed():
    run = scenario(session("a", turn("b", 5), turn("c", 3, output_len=1)))

    def breaks(candidate):
        return any((item.delay or 0) > 1 for item in candidate.requests[0].turns)

    [small] = shrink(run, breaks, 300).requests[0].turns
    assert (small.delay, small.prompt_len, small.max_tokens) == (2, 1, 1)


def test_turns_are_written_and_read():
    run = scenario(session("a", turn("b", None)), session("z"))
    written = json.loads(scenario_json(run))
    assert written["requests"][0]["turns"] == [
        {"prompt": [["b", 3]], "max_tokens": 2, "delay": None}
    ]
    assert "turns" not in written["requests"][1]
    assert scenario_of(written, "f").requests == run.requests


def test_turns_without_streaming_inputs_are_refused():
    data = json.loads(scenario_json(scenario(session("a", turn("b")), streaming_inputs=False)))
    with pytest.raises(FileError) as error:
        scenario_of(data, "f")
    assert "needs a vllm configuration with streaming_inputs true" in str(error.value)


def test_a_turn_that_generates_more_than_it_may_is_refused():
    run = scenario(session("a", replace(turn("b"), output_len=3)))
    with pytest.raises(FileError) as error:
        scenario_of(json.loads(scenario_json(run)), "f")
    assert "$.requests[0].turns[0].output_len: 3 is more than max_tokens (2)" in str(error.value)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("revision", ["documented", "0.30", "0.33"])
def test_the_model_keeps_every_rule_if_turns_have_grammars(revision, ahead):
    runs = (
        replace(session("a", turn("b", 3, grammar_ends=1), turn("c", None)), grammar_begins=1),
        session("d", turn("e", None, grammar_ends=9), turn("f", grammar_ends=2)),
        replace(session("z"), grammar_ends=9),
    )
    keys = {"structured_outputs": True, "async_scheduling": ahead}
    outcome = judged(scenario(*runs, revision=revision, **keys))
    assert (outcome.broken, outcome.finished) == ([], True)
    assert {"V1-R45", "V1-R59", "V1-R64"} <= outcome.exercised.keys()


def test_the_grammar_of_a_turn_is_written_and_shrunk_away():
    keys = {"structured_outputs": True}
    run = scenario(session("a", turn("b", grammar_ends=2)), **keys)
    assert scenario_of(json.loads(scenario_json(run)), "file") == run
    smaller = [*simpler_requests(run.requests[0], 4)]
    assert replace(run.requests[0], turns=(turn("b"),)) in smaller
