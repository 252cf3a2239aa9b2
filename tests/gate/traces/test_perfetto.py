"""Trace events: what the format asks for, and the numbers of the run in them."""

import json
import os
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import read_scenario, scenario_json
from schedproof.gate.traces.perfetto import (
    STEP_US,
    Phase,
    Recorded,
    phases,
    run_events,
    write_perfetto,
)
from schedproof.model.observation import Step
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules.predicate import Broken

from ..trace_build import recorded, request, scenario, written

ROOT = Path(__file__).resolve().parents[3]
PREEMPTED = ROOT / "gate" / "corpus" / "builtin" / "vllm" / "preempted-before-it-was-computed.json"
# What the format's document asks of an event of each kind, beside name, ph, pid and tid.
KEYS = {
    "X": {"cat", "ts", "dur", "args"},
    "C": {"ts", "args"},
    "i": {"cat", "ts", "s", "args"},
    "M": {"args"},
}
NAMED = {"process_name": {"name"}, "thread_name": {"name"}, "thread_sort_index": {"sort_index"}}
THREE = (request("a", 0, 12, 6), request("b", 1, 5, 9, output_len=3), request("c", 3, 20))

pytestmark = pytest.mark.usefixtures("working_folder")


def saved(given):
    Path("s.json").write_text(scenario_json(given), encoding="utf-8")


def run_of(given):
    arrivals = {arrived.id: arrived.arrival for arrived in given.requests}
    run = Recorded("toy", given.config, arrivals)
    replay(ModelTarget(), given, (), lambda _, step: run.steps.append(step))
    return run


def checked(events):
    """The events, after all that the format asks for; slices of a thread lie side by side."""
    slices = defaultdict(list)
    for event in events:
        kind = event["ph"]
        assert event.keys() == {"name", "ph", "pid", "tid"} | KEYS[kind]
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        if kind == "M":
            assert event["args"].keys() == NAMED[event["name"]]
            continue
        assert event["ts"] >= 0
        assert event["ts"] % STEP_US == 0
        if kind == "X":
            assert event["dur"] >= STEP_US
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif kind == "C":
            assert all(type(value) is int for value in event["args"].values())
        else:
            assert event["s"] in ("g", "p", "t")
    for track in slices.values():
        assert all(earlier[1] <= other[0] for earlier, other in pairwise(sorted(track)))
    return events


def tracks(events):
    return {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }


def instants(events):
    """Track, name and step of each."""
    names = tracks(events)
    return [
        (names[event["tid"]], event["name"], event["ts"] // STEP_US)
        for event in events
        if event["ph"] == "i"
    ]


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_the_events_of_each_system_are_as_the_format_has_them_and_lose_no_token(system):
    revision = "sound" if system == "spyre" else "documented"
    run = run_of(scenario(*THREE, system=system, revision=revision))
    events = checked([*run_events(1, run)])
    assert [*tracks(events).values()] == ["steps", "a", "b", "c"]
    tokens: Counter[str] = Counter()
    for event in events:
        if event["ph"] == "X" and event["cat"] == "request":
            tokens[tracks(events)[event["tid"]]] += event["args"]["tokens"]
    scheduled: Counter[str] = Counter()
    for step in run.steps:
        scheduled.update(step.scheduled)
    assert tokens == scheduled
    assert sum(shown["ph"] == "X" and shown["tid"] == 1 for shown in events) == len(run.steps)


def test_counters_are_the_observed_sizes_where_they_change():
    run = run_of(scenario(*THREE))
    shown: dict[str, dict[int, int]] = defaultdict(dict)
    for event in run_events(1, run):
        if event["ph"] == "C":
            shown[event["name"]][event["ts"] // STEP_US] = event["args"]["value"]
    now: dict[str, int] = {}
    for number, step in enumerate(run.steps):
        now |= {name: values[number] for name, values in shown.items() if number in values}
        decoded = len(step.scheduled) if step.kind == "decode" else 0
        assert now["tkv (tokens)"] == (step.tkv or 0)
        assert now["volume (batch x tkv, tokens)"] == decoded * (step.tkv or 0)
        assert now["waiting (requests)"] == len(step.waiting or ())
        assert now["running (requests)"] == len(step.running or ())
        held = {block for blocks in (step.blocks or {}).values() for block in blocks}
        assert now["blocks held"] == len(held)


def test_a_preempted_request_is_drawn_as_such_until_it_comes_back():
    run = run_of(read_scenario(PREEMPTED))
    assert [*phases("long", run)] == [
        Phase("prefill", 0, 0),
        Phase("prefill", 1, 1),
        Phase("prefill", 2, 2),
        Phase("preempted", 3, 7),
        Phase("prefill", 8, 8),
        Phase("prefill", 9, 9),
    ]
    assert [*phases("first", run)] == [Phase("prefill", 0, 0), Phase("decode", 1, 2)]
    assert ("long", "preempted", 3) in instants(checked([*run_events(1, run)]))


def test_waiting_paused_and_left_out_are_told_apart():
    steps = [
        Step(kind="prefill", scheduled={"a": 8}, waiting=("b",), paused=()),
        Step(kind="decode", scheduled={"a": 1}, waiting=(), paused=("b",)),
        Step(kind="decode", scheduled={"c": 1}, waiting=(), paused=()),
        Step(kind="idle", scheduled={}, waiting=(), paused=(), finished={"a": "aborted"}),
    ]
    run = Recorded("toy", {}, {"a": 0, "b": 0}, steps)
    assert [phase.name for phase in phases("a", run)] == ["prefill", "decode", "not scheduled"]
    assert [phase.name for phase in phases("b", run)] == ["waiting", "paused", "waiting"]
    assert instants([*run_events(1, run)]) == [("a", "aborted", 4)]


def test_jumps_borders_and_broken_rules_are_instants():
    small = {"block_size": 64, "chunk_size": 256, "max_num_seqs": 2, "max_model_len": 512}
    meant = scenario(
        *(request("r1", 0, 3, 3), request("r2", 0, 256, 2)),
        **{"revision": "documented", "max_batch_tkv": 520, **small},
    )
    run = run_of(meant)
    run.broken = [Broken("SPY-R07", 3, "too wide")]
    assert instants(checked([*run_events(1, run)])) == [
        ("steps", "jump 4 -> 256", 2),
        ("steps", "jump 256 -> 261", 3),
        ("r2", "border", 3),
        ("r2", "length", 4),
        ("r1", "length", 4),
        ("steps", "broken SPY-R07", 3),
    ]


def test_replay_writes_what_loads_and_leaves_out_who_was_refused(run):
    refused = request("long", 1, 60, 20)
    saved(scenario(*THREE, refused))
    result = run("replay", "s.json", "--quiet", "--perfetto", "p.json")
    assert (result.code, result.err) == (0, "")
    whole = json.loads(Path("p.json").read_bytes())
    assert whole["otherData"]["step_us"] == STEP_US
    assert [*tracks(checked(whole["traceEvents"])).values()] == ["steps", "a", "b", "c"]


def test_who_would_have_come_after_the_broken_step_has_no_track(run):
    small = {"block_size": 64, "chunk_size": 256, "max_num_seqs": 2, "max_model_len": 512}
    three = (request("r1", 0, 3, 3), request("r2", 0, 256, 2), request("late", 9, 3, 3))
    saved(scenario(*three, **{"revision": "documented", "max_batch_tkv": 520, **small}))
    assert run("replay", "s.json", "--quiet", "--perfetto", "p.json").code == 1
    events = checked(json.loads(Path("p.json").read_bytes())["traceEvents"])
    assert [*tracks(events).values()] == ["steps", "r1", "r2"]
    assert ("steps", "broken SPY-R47", 2) in instants(events)


def test_each_run_of_a_trace_is_a_process(run):
    lines = recorded(scenario(*THREE))
    written(Path("t"), lines, recorded(scenario(request("x", 0, 4))))
    result = run("check-trace", "t", "--rule", "ALL-R04", "--perfetto", "p.json")
    assert (result.code, result.err) == (0, "")
    events = checked(json.loads(Path("p.json").read_bytes())["traceEvents"])
    named = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    assert named == {
        number: f"run {number}, schedproof model of spyre sound, one step = {STEP_US} µs"
        for number in (1, 2)
    }
    of_second = [event for event in events if event["pid"] == 2]
    assert [*tracks(of_second).values()] == ["steps", "x"]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("no/p.json", "--perfetto: no/p.json: the folder no does not exist"),
        (".", "--perfetto: . is a folder; valid: a file"),
        ("s.json", "--perfetto: s.json is the input itself; valid: another file"),
        ("t.json", "--trace: t.json is also the file of --perfetto; valid: another file"),
    ],
)
def test_a_place_that_cannot_be_is_one_line(place, says, run):
    saved(scenario(*THREE))
    before = Path("s.json").read_bytes()
    result = run("replay", "s.json", "--perfetto", place, "--trace", "t.json")
    assert result == (2, "", f"schedproof: {says}\n")
    assert Path("s.json").read_bytes() == before


def test_an_unnamed_pipe_takes_it():
    reads, writes = os.pipe()
    with open(reads, "rb") as pipe:
        write_perfetto(Path(f"/dev/fd/{writes}"), [run_of(scenario(request("x", 0, 4)))])
        os.close(writes)
        assert checked(json.loads(pipe.read())["traceEvents"])
