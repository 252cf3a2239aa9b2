"""Requests that wait for their grammar, in a run: how they are judged, written and shrunk."""

import json

import pytest
from msgspec.structs import replace

from schedproof.gate.files.scenario_file import FileError, scenario_json, scenario_of
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.shrinking.shrink import shrink
from schedproof.spec.catalogue import load

LAST = {"arrival": 0, "prompt": (("z", 6),), "max_tokens": 4}
SMALL = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32}


def scenario(*steps, revision="0.33", **changes):
    config = full_config("vllm", revision, {**SMALL, "structured_outputs": True, **changes})
    requests = tuple(
        Request(id=name, arrival=0, prompt=((name, 6),), max_tokens=4, grammar_steps=number)
        for name, number in zip("abcdef", steps, strict=False)
    )
    return Scenario(system="vllm", revision=revision, config=config, requests=requests)


def judged(run, target=None):
    rules = [rule for rule in load("vllm", run.revision) if rule.checked]
    return replay(target or ModelTarget(), run, rules)


class Changed(ModelTarget):
    """A target that takes another number of steps for a grammar than the scenario says."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def add(self, request):
        steps = self.steps(request.get("grammar_steps", 0))
        return super().add({**request, "grammar_steps": steps})


@pytest.mark.parametrize("revision", ["documented", "0.30", "0.33"])
def test_the_model_keeps_every_rule_while_requests_wait_for_their_grammars(revision):
    outcome = judged(scenario(0, 3, 0, 1, 0, 9, revision=revision))
    assert (outcome.broken, outcome.finished) == ([], True)
    assert {"V1-R41", "V1-R42", "V1-R09"} <= outcome.exercised.keys()


def test_a_long_wait_for_a_grammar_is_no_lack_of_progress():
    assert judged(scenario(200)).broken == []


class Compiles(ModelTarget):
    """A target for which every grammar is valid."""

    def add(self, request):
        return super().add({**request, "grammar_fails": False})


class NeverTells(ModelTarget):
    """A target that forgets requests whose grammar is invalid without ending them."""

    def step(self):
        reply = super().step()
        finished, waiting = reply["step"]["finished"], reply["step"]["waiting"]
        waiting += [name for name, reason in finished.items() if reason == "error"]
        reply["step"]["finished"] = {n: r for n, r in finished.items() if r != "error"}
        return reply


def invalid(*steps):
    run = scenario(*steps)
    requests = tuple(replace(request, grammar_fails=True) for request in run.requests)
    return replace(run, requests=(*requests, Request(id="z", **LAST)))


def test_a_request_with_an_invalid_grammar_ends_with_an_error_and_no_rule_is_broken():
    outcome = judged(invalid(2, 0, 1))
    assert (outcome.broken, outcome.finished) == ([], True)
    assert outcome.session.monitor.history.requests["a"].ended == "error"
    assert outcome.exercised["V1-R43"]


def test_a_request_that_runs_although_its_grammar_is_invalid_is_named():
    [first, *_] = judged(invalid(0), Compiles()).broken
    assert (first.rule, first.message) == (
        *("V1-R41", "a scheduled, although its grammar cannot be compiled"),
    )


def test_a_request_that_waits_although_its_grammar_is_invalid_is_named():
    [first, *_] = judged(invalid(0), NeverTells()).broken
    assert first.rule == "V1-R43"


def test_a_request_that_runs_before_its_grammar_is_named():
    [first, *_] = judged(scenario(3), Changed(lambda steps: 0)).broken
    assert first.rule == "V1-R41"
    assert first.message == "a scheduled 3 steps before its grammar is compiled"


def test_a_request_that_is_held_up_by_a_grammar_is_named():
    target = Changed(lambda steps: 9)  # so that all wait as long as the first
    [first, *_] = judged(scenario(9, 0), target).broken
    assert first.rule == "V1-R42"


def test_a_request_that_never_runs_although_its_grammar_is_compiled_is_named():
    [first, *_] = judged(scenario(1), Changed(lambda steps: 99)).broken
    assert first.rule == "V1-R07"


def test_shrinking_leaves_out_the_wait_for_a_grammar_that_is_not_needed():
    def breaks(candidate):
        return candidate.requests[-1].grammar_steps > 1

    small = shrink(scenario(3, 7), breaks, 300)
    assert [request.grammar_steps for request in small.requests] == [2]


def test_the_steps_of_a_grammar_are_written_and_read():
    run = scenario(0, 3)
    written = json.loads(scenario_json(run))
    assert "grammar_steps" not in written["requests"][0]
    assert scenario_of(written, "f").requests == run.requests


def test_a_grammar_without_structured_outputs_is_refused():
    data = json.loads(scenario_json(scenario(3, structured_outputs=False)))
    with pytest.raises(FileError) as error:
        scenario_of(data, "f")
    assert "$.requests[0].grammar_steps: 3 needs a vllm configuration" in str(error.value)
