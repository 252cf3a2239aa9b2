"""Control events in a run: how they are judged, replayed and shrunk."""

import json

import pytest
from msgspec.structs import replace

from schedproof.gate.files.scenario_file import FileError, scenario_json, scenario_of
from schedproof.gate.targets.factory import make_target
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.scenario import Event, Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import in_flight
from schedproof.properties.checking.replay import replay
from schedproof.properties.shrinking.shrink import shrink
from schedproof.spec.catalogue import load
from schedproof.tests.model.vllm.pauses import RUNS, as_scenario

RULES = [rule for rule in load("vllm", "0.33") if rule.checked]
SMALL = {"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 32}


def scenario(*events, **changes):
    config = full_config("vllm", "0.33", SMALL | changes)
    requests = tuple(
        Request(id=name, arrival=number, prompt=(("p", 9),), max_tokens=4)
        for number, name in enumerate("abc")
    )
    return Scenario(system="vllm", revision="0.33", config=config, requests=requests, events=events)


def judged(run, target=None):
    return replay(target or ModelTarget(), run, RULES)


@pytest.mark.parametrize("run", RUNS)
def test_a_step_without_a_decision_does_not_count_as_rest(run):
    outcome = judged(as_scenario(*run[:3]))
    assert (outcome.broken, outcome.finished) == ([], True)
    assert outcome.exercised["V1-R50"]


@pytest.mark.parametrize("run", RUNS[1:3] + RUNS[5:])
def test_a_request_that_rests_in_a_pause_is_found_out(monkeypatch, run):
    monkeypatch.setattr(in_flight, "is_decided", lambda state: True)
    assert judged(as_scenario(*run[:3])).broken[0].rule == "V1-R50"


class Deaf(ModelTarget):
    """A target without control events."""

    def start(self, *args):
        reply = super().start(*args)
        return {key: value for key, value in reply.items() if key != "controls"}


class KeepsTheCache(ModelTarget):
    """A target that says that it has reset its cache, and has not."""

    def control(self, kind):
        return {"ok": True, "done": True} if kind == "reset_prefix_cache" else super().control(kind)


class NeverResumes(ModelTarget):
    def control(self, kind):
        return {"ok": True, "done": True} if kind == "resume" else super().control(kind)


def test_what_is_computed_after_a_reset_is_found_although_another_computed_more_before_it():
    prompt = (("p", 24),)
    requests = (
        Request(id="old", arrival=0, prompt=prompt, max_tokens=8, abort_at=1, abort_inside=True),
        Request(id="new", arrival=0, prompt=prompt, max_tokens=1),
        Request(id="late", arrival=2, prompt=(*prompt, ("out:old", 7)), max_tokens=1),
    )
    changes = {"block_size": 16, "num_blocks": 2, "max_num_batched_tokens": 64}
    run = replace(scenario(Event(2, "reset_prefix_cache"), **changes), requests=requests)
    outcome = judged(run)
    assert outcome.broken == []
    assert outcome.exercised["V1-R36"]


def test_the_model_keeps_every_rule_with_every_event():
    run = scenario(
        Event(1, "reset_running_requests"),
        Event(2, "pause_new"),
        Event(3, "pause_all"),
        Event(6, "resume"),
        Event(8, "sleep"),
        Event(10, "wake_up"),
        Event(30, "reset_prefix_cache"),
    )
    outcome = judged(run)
    assert (outcome.broken, outcome.finished) == ([], True)
    assert {"V1-R35", "V1-R38", "V1-R39"} <= outcome.exercised.keys()


class NeverSleeps(ModelTarget):
    """A target whose requests continue while the engine should sleep."""

    def control(self, kind):
        return super().control("reset_running_requests" if kind == "sleep" else kind)


class KeepsTheIndex(ModelTarget):
    """A target that pauses while the engine sleeps, but keeps what it knows of the blocks."""

    def control(self, kind):
        return super().control("pause_all" if kind == "sleep" else kind)


def test_requests_that_continue_while_the_engine_sleeps_are_found():
    outcome = judged(scenario(Event(1, "sleep"), Event(3, "wake_up")), NeverSleeps())
    assert outcome.broken[0].rule == "V1-R38"


def test_blocks_that_are_found_after_a_sleep_are_found_out():
    run = scenario(Event(19, "sleep"), Event(20, "wake_up"))
    late = Request(id="d", arrival=21, prompt=(("p", 9),), max_tokens=1)
    run = replace(run, requests=(*run.requests, late))
    assert judged(run).broken == []
    assert judged(run, KeepsTheIndex()).broken[0].rule == "V1-R36"


def test_sleep_is_shrunk_to_what_is_needed_of_it():
    run = scenario(Event(1, "sleep"), Event(3, "wake_up"))
    small = shrink(run, lambda candidate: len(candidate.events) == 2, 200)
    assert [event.kind for event in small.events] == ["reset_prefix_cache", "resume"]


def test_a_run_that_stays_paused_ends():
    outcome = judged(scenario(Event(1, "pause_all")))
    assert (outcome.broken, outcome.finished) == ([], True)
    assert outcome.steps < 10


def test_a_target_without_events_is_not_sent_any():
    outcome = judged(scenario(Event(1, "pause_all"), Event(2, "resume")), Deaf())
    assert outcome.broken == []
    assert outcome.session.left_out == {"pause_all": 1, "resume": 1}


def test_a_reset_that_forgets_nothing_is_found():
    run = scenario(Event(0, "pause_new"), Event(4, "reset_prefix_cache"), Event(4, "resume"))
    assert judged(run, KeepsTheCache()).broken == []
    late = Request(id="d", arrival=20, prompt=(("p", 9),), max_tokens=1)
    run = scenario(Event(19, "reset_prefix_cache"))
    run = Scenario(
        system=run.system,
        revision=run.revision,
        config=run.config,
        requests=(*run.requests, late),
        events=run.events,
    )
    [first, *_] = judged(run, KeepsTheCache()).broken
    assert first.rule == "V1-R36"


def test_a_scheduler_that_does_not_go_on_is_found():
    run = scenario(Event(1, "pause_all"), Event(3, "resume"))
    broken = {failure.rule for failure in judged(run, NeverResumes()).broken}
    assert broken & {"V1-P01", "V1-R07", "ALL-R10"}


def test_shrinking_leaves_out_the_events_that_are_not_needed():
    run = scenario(Event(1, "reset_running_requests"), Event(2, "pause_all"), Event(5, "resume"))

    def breaks(candidate):
        return any(event.kind == "pause_all" for event in candidate.events)

    small = shrink(run, breaks, 200)
    assert [event.kind for event in small.events] == ["pause_all"]
    assert small.events[0].step == 0


def test_events_are_written_and_read():
    run = scenario(Event(1, "pause_all"), Event(3, "resume"))

    assert scenario_of(json.loads(scenario_json(run)), "f").events == run.events
    assert "events" not in json.loads(scenario_json(scenario()))


@pytest.mark.parametrize(
    ("event", "changes", "message"),
    [
        ({"step": 1, "kind": "stop"}, {}, '$.events[0].kind: "stop": Invalid enum value'),
        ({"step": -1, "kind": "resume"}, {}, "$.events[0].step: -1: "),
        ({"step": 1, "king": "resume"}, {}, "$.events[0].king: unknown key; valid: step, kind"),
        (
            {"step": 1, "kind": "resume"},
            {"kv_connector": True},
            '$.events[0].kind: "resume" is not modelled for vllm in this configuration; '
            "valid: no events with a kv_connector",
        ),
    ],
)
def test_an_impossible_event_is_named(event, changes, message):

    data = json.loads(scenario_json(scenario(**changes)))
    data["events"] = [event]
    with pytest.raises(FileError) as error:
        scenario_of(data, "f")
    assert message in str(error.value)


def test_an_adapter_needs_no_method_for_events(monkeypatch, tmp_path):
    lines = ["class Target:"]
    for name in ("start", "add", "abort", "step", "stop"):
        lines.append(f"    def {name}(self, *args):\n        return {{}}")
    (tmp_path / "plain_adapter.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert make_target(parse_target("plain_adapter:Target"))
