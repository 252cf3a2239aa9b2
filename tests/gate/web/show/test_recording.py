"""A run as it is kept for a page: what happened, and what the models say of it."""

import pytest
from msgspec.structs import replace

from schedproof.gate.web.show.following import STATES
from schedproof.gate.web.show.page import pack
from schedproof.gate.web.show.recording import record_run
from schedproof.model.errors import InputError
from schedproof.model.scenario import Event, Request, Turn
from schedproof.model.systems import revisions_of
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.checking.session import Session
from schedproof.properties.explanations.failure import explain
from schedproof.spec.catalogue import load, select

from .... import golden_tables
from ...build import Ghosts
from ...trace_build import request, scenario
from . import runs
from .runs import of


def happened(run, what):
    return [
        (happening.step, happening.request)
        for happening in run.happenings()
        if happening.what == what
    ]


def test_the_steps_are_those_of_a_replay_up_to_the_first_broken_rule():
    seen = []
    outcome = replay(Ghosts(), scenario(), load("spyre"), lambda _, step: seen.append(step))
    run = record_run(scenario(), Ghosts())
    assert (run.steps, run.broken) == (seen, outcome.broken)
    assert run.ended == f"{run.broken[0].rule} was broken in step {len(seen) - 1}"
    assert [happening.what for happening in run.happenings() if happening.step == len(seen) - 1][
        -1
    ] == "broken"


def test_requests_arrive_are_aborted_and_finish_when_the_trace_says():
    requests = (request("a", 0, 12, 6), request("b", 2, 5, 9, abort_at=4), request("c", 3, 99))
    run = record_run(scenario(*requests))
    assert happened(run, "arrived") == [(0, "a"), (2, "b")]
    assert happened(run, "aborted") == [(4, "b")]
    assert happened(run, "refused") == [(3, "c")]
    ends = [(n, name) for n, step in enumerate(run.steps) for name in step.finished or {}]
    assert happened(run, "finished") == ends
    assert (
        run.ended == f"every request has ended after {len(run.steps)} steps, and no rule is broken"
    )


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_idle_steps_of_a_model_are_not_taken_but_drawn(system, monkeypatch):
    early = Request(id="a", arrival=2, prompt=(("a", 20),), max_tokens=3)
    late = Request(id="b", arrival=90, prompt=(("b", 9),), max_tokens=4)
    scenario = of(system, revisions_of(system)[0], (early, late))
    skipped = record_run(scenario)
    monkeypatch.setattr(Session, "at_rest", False)
    assert pack(record_run(scenario)) == pack(skipped)


def test_ten_million_idle_steps_take_a_moment_and_too_many_busy_ones_are_refused(monkeypatch):
    late = Request(id="b", arrival=10**7, prompt=(("b", 9),), max_tokens=40)
    run = record_run(of("vllm", "documented", (late,)))
    assert len(run.steps) == 10**7 + 40
    assert len(pack(run)) < 10_000
    monkeypatch.setattr("schedproof.gate.web.show.following.MOST_STEPS", 30)
    with pytest.raises(InputError, match="FILE: a run of more than 30 steps; valid: a shorter run"):
        record_run(of("vllm", "documented", (late,)))


def test_who_is_paused_and_who_decodes_again():
    run = runs.pauses()
    before: tuple[str, ...] = ()
    paused = []
    for number, step in enumerate(run.steps):
        paused += [(number, name) for name in sorted({*(step.paused or ())} - {*before})]
        before = step.paused or ()
    assert happened(run, "paused") == paused != []
    assert happened(run, "resumed") != []


def test_a_preempted_request_waits_again():
    run = runs.preemption()
    preempted = [(n, name) for n, step in enumerate(run.steps) for name in step.preempted or ()]
    assert happened(run, "preempted") == preempted != []
    step, name = preempted[0]
    state = run.followed.requests[name]["state"].at(step)
    assert state is not None
    assert run.followed.requests[name]["computed"].at(step) == 0


def test_a_run_shows_what_is_loaded_in_flight_and_sent():
    asked = (
        request("a", 0, 33, 6, send_steps=2),
        request("b", 1, 64, 5, external_tokens=64, load_steps=2),
    )
    config = {"kv_connector": True, "pipeline_parallel_size": 2, "max_num_seqs": 4}
    run = record_run(runs.of("vllm", "documented", asked, **config))
    assert {n for n, step in enumerate(run.steps) if step.parked} == steps_in(run, "b", "loading")
    assert happened(run, "parked") == [(1, "b")]
    [(loaded, name)] = happened(run, "loaded")
    assert (name, loaded) == ("b", max(steps_in(run, "b", "loading")) + 1)
    assert steps_in(run, "a", "in_flight")
    [ends] = [n for n, step in enumerate(run.steps) if "a" in (step.finished or {})]
    sent = {n for n, step in enumerate(run.steps) if n > ends and "a" in (step.blocks or {})}
    assert steps_in(run, "a", "sending") - {ends} == sent != set()


def test_a_session_is_between_two_turns_and_loads_nothing():
    turn = Turn(prompt=(("next", 3),), max_tokens=2, delay=2)
    session = request("a", 0, 6, 2, turns=(turn,))
    run = record_run(of("vllm", "documented", (session,), streaming_inputs=True))
    waits = {n for n, step in enumerate(run.steps) if step.parked}
    assert waits - {min(waits)} == steps_in(run, "a", "between_turns") != set()
    assert happened(run, "turn") == [(min(waits), "a")]
    assert happened(run, "parked") == happened(run, "loaded") == []


def test_the_operators_calls_are_told():
    events = (Event(2, "reset_prefix_cache"),)
    run = record_run(replace(of("vllm", "documented", (request("a", 0, 6, 5),)), events=events))
    assert happened(run, "control") == [(2, "")]


def test_blocks_of_every_group_are_counted():
    groups = [{"kind": "full"}, {"kind": "sliding_window", "window": 6}]
    asked = (request("a", 0, 8, 4),)
    run = record_run(of("vllm", "documented", asked, kv_groups=groups, num_blocks=20, block_size=4))
    held, free = run.followed.run["held"], run.followed.run["free"]
    assert {(held.at(0) or 0) + (free.at(0) or 0)} == {20}
    assert run.followed.requests["a"]["held"].at(0) == held.at(0)


def steps_in(run, name, state):
    line = run.followed.requests[name]["state"]
    return {n for n in range(len(run.steps)) if line.at(n) == STATES.index(state)}


@pytest.mark.slow
def test_why_and_the_projection_are_those_of_the_terminal():
    run = runs.volume()
    first = run.broken[0]
    assert list(run.cause.why) == explain("SPY-R07", run.scenario, first.step, "documented")
    granted = [projected for projected in run.projected if projected.joined]
    assert [projected.newcomer for projected in granted] == [f"r{n}" for n in range(1, 32)]
    for projected in granted:
        assert run.steps[projected.step].scheduled.keys() == {projected.newcomer}
        assert max(projected.reaches.values()) <= projected.largest <= run.config["max_batch_tkv"]
    words = f"  r31 reaches tkv {granted[-1].reaches['r31']} at most"
    assert any(line.startswith(words) for line in run.cause.why)


def test_a_target_that_parts_from_its_model_has_no_projection_from_there_on():
    whole = record_run(scenario(revision="2.1.2"))
    assert sum(projected.joined for projected in whole.projected) == 2
    assert runs.pauses().projected == []  # it pauses instead


def test_the_last_step_has_its_model_beside_it_where_the_rule_is_lockstep():
    run = runs.parted()
    assert run.expected is not None
    assert run.expected.running == (run.steps[-1].running or ())[::-1]
    assert run.expected.tkv == (run.steps[-1].tkv or 0) - 1
    assert record_run(scenario(), Ghosts()).expected is None


def test_the_rules_may_be_chosen():
    run = record_run(scenario(), Ghosts(), select(load("spyre"), ["SPY-R22"]))
    assert [rule.id for rule in run.checked] == ["SPY-R22"]
    assert run.broken == []
    assert run.followed.stakes["SPY-R22"].pieces


@pytest.mark.parametrize("table", golden_tables.cases("2.1.2_spyre_cp_scheduler_steps.json"))
def test_a_step_table_is_found_again(table):
    arrivals = [golden_tables.arrival_of(given) for given in table["requests"]]  # type: ignore[attr-defined]
    requests = tuple(map(golden_tables.request_of, arrivals))
    config = golden_tables.config_of(table)
    config.pop("pausing", None)
    if config.get("num_blocks") is None:
        config.pop("num_blocks", None)
    run = record_run(runs.of("spyre", "2.1.2", requests, **config), ModelTarget())
    compared = 0
    for row in table["all_steps"][1 : len(run.steps)]:  # type: ignore[index]
        number = row["step"] - 1
        assert run.followed.run["tkv"].at(number) == row["tkv"]
        assert run.followed.run["held"].at(number) == row["n_used_blocks"]
        # What arrives before the next step is in the row already.
        late = {read.id for read in requests if read.arrival == row["step"]}
        queues = {name: run.followed.queues[name].at(number) for name in ("waiting", "running")}
        assert [*queues["waiting"]] == [
            waiting for waiting in row["waiting"] if waiting not in late
        ]
        assert [*queues["running"]] == row["running"]
        compared += 1
    assert compared >= 3
