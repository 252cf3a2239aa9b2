"""Steps in flight, by example: who is passed over, who waits for what is in flight, what comes."""

from typing import Any

import pytest
from msgspec.structs import replace

from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.rules import common
from schedproof.properties.rules import common as shown
from schedproof.properties.vllm.history import in_flight as flights
from schedproof.properties.vllm.history.run import Coming, VllmState
from schedproof.properties.vllm.predicates import (
    blocks,
    budget,
    in_flight,
    loads,
    preemption,
    queues,
)
from schedproof.properties.vllm.predicates import in_flight as speculation
from schedproof.spec.catalogue import load

from .build import IDLE, book, ran, request

AHEAD: dict[str, Any] = {"async_scheduling": True}
PIPELINE: dict[str, Any] = {"pipeline_parallel_size": 2}
LONG: dict[str, Any] = {"pipeline_parallel_size": 3}
FAST: dict[str, Any] = {**LONG, "early_completions": 2}


def promised(name="a", emitted=1, **more):
    """All that is known of it is computed, and a token is in flight."""
    return request(name, 6, 6 + emitted, emitted, tokens_in_flight=1, **more)


def before(*accounts, running="ab", on_the_way=(), **keys):
    history = book(*accounts, running=running, **keys)
    history.system_state = VllmState(flights=tuple(on_the_way))
    return history


@pytest.mark.parametrize(
    ("keys", "emitted", "breaks"),
    [(AHEAD, 1, False), (AHEAD, 6, False), (AHEAD, 7, True), (PIPELINE, 1, True)],
)
def test_a_request_is_not_scheduled_whose_next_token_is_not_known(keys, emitted, breaks):
    history = before(promised(emitted=emitted), running="a", **keys)
    reported = in_flight.scheduled_for_nothing(history, ran({"a": 1}, "a"))
    assert (reported is not None) is breaks


STAGES: dict[str, Any] = {**AHEAD, **LONG, "use_v2_model_runner": True}


@pytest.mark.parametrize(("rests", "breaks"), [(2, True), (1, True), (0, False)])
def test_a_request_decodes_once_for_each_stage_of_a_pipeline(rests, breaks):
    history = before(request("a", 6, 7, 1, rests=rests), running="a", **STAGES)
    reported = in_flight.out_of_its_turn(history, ran({"a": 1}, "a"))
    assert reported == (
        f"a is scheduled {3 - rests} steps after the decision that yields its last token; in a "
        "pipeline of 3 stages, it must wait for 3 steps"
        if breaks
        else None
    )
    assert in_flight.someone_rests(history, ran({}, "a")) is breaks
    assert in_flight.scheduled_for_nothing(history, ran({"a": 1}, "a")) is None
    assert in_flight.out_of_its_turn(history, ran({}, "a")) is None


def test_a_request_rests_only_in_a_pipeline_whose_steps_are_decided_ahead():
    turns = [
        flights.turn(keys)
        for keys in (STAGES, AHEAD | LONG, STAGES | {"pipeline_parallel_size": 1})
    ]
    assert turns == [3, 0, 0]
    only = in_flight.PREDICATES["V1-R50"].concerns
    assert only(STAGES)
    assert not only({**STAGES, "async_scheduling": False})


def test_requests_that_rest_are_no_reason_to_skip_others():
    history = before(request("a", 6, 7, 1, rests=1), request("b", 6, 7, 1), **STAGES)
    assert in_flight.scheduled_for_nothing(history, ran({"b": 1}, "ab")) is None
    assert queues.passed_by(history, ran({"b": 1}, "ab")) is None
    assert "a in front of it has" in (in_flight.scheduled_for_nothing(history, ran({}, "ab")) or "")


def test_a_request_behind_one_that_is_passed_over_has_its_turn():
    history = before(promised("a"), request("b", 6, 6, 1), **PIPELINE)
    assert in_flight.scheduled_for_nothing(history, ran({"b": 1}, "ab")) is None
    assert in_flight.passed_over_beside_others(history, ran({"b": 1}, "ab"))
    reported = in_flight.scheduled_for_nothing(history, ran({}, "ab"))
    assert reported == "b is not scheduled, although a in front of it has nothing to compute"
    assert in_flight.scheduled_for_nothing(history, ran({}, "a", "b", preempted=("b",))) is None


def test_who_is_passed_over_needs_no_turn_and_no_block():
    history = before(promised("a"), request("b", 6, 6, 1), **PIPELINE)
    assert queues.passed_by(history, ran({"b": 1}, "ab")) is None
    assert queues.passed_by(history, ran({}, "ab")) is not None
    full = request("b", 6, 8, 2, tokens_in_flight=1)
    history = before(request("a", 6, 6, 1), full, free=0, num_blocks=4, **PIPELINE)
    history.last = ran({}, "ab", blocks={"a": (1, 2), "b": (3, 4)}, free_blocks=0)
    step = ran({"a": 1}, "a", "b", preempted=("b",))
    assert preemption.needless_preemption(history, step) is not None


def test_a_request_at_max_model_len_is_passed_over_although_it_may_generate_more():
    history = before(promised("a"), running="a", max_model_len=8, **AHEAD)
    assert queues.passed_by(history, ran({}, "a")) is None
    assert in_flight.scheduled_for_nothing(history, ran({"a": 1}, "a")) is not None


def test_a_preempted_request_waits_for_what_is_on_its_way():
    again = request("a", preemptions=1)
    history = before(again, request("b"), running="", on_the_way=[{"a": Coming()}], **LONG)
    assert in_flight.admitted_too_early(history, ran({"b": 4}, "b", "a")) is None
    assert in_flight.one_is_set_aside(history, ran({"b": 4}, "b", "a"))
    assert queues.overtaken(history, ran({"b": 4}, "b", "a")) is None
    reported = in_flight.admitted_too_early(history, ran({"a": 4}, "a", "b"))
    assert reported == "a is admitted again while a step in flight still computes it"
    history.system_state = VllmState()
    assert not in_flight.one_is_set_aside(history, ran({"b": 4}, "b", "a"))
    assert queues.overtaken(history, ran({"b": 4}, "b", "a")) is not None


@pytest.mark.parametrize(("place", "breaks"), [(0, True), (1, False), (2, True)])
def test_tokens_come_once_and_in_their_order(place, breaks):
    history = before(promised(), running="a", on_the_way=[{"a": Coming()}], **AHEAD)
    step = ran({"a": 1}, "a", emitted={"a": 1}, emitted_at={"a": place})
    assert (in_flight.out_of_turn(history, step) is not None) is breaks
    assert in_flight.comes_late(history, step)
    assert not in_flight.comes_late(history, ran({"a": 1}, "a"))


def test_of_every_token_it_is_shown_which_one_it_is():
    history = before(promised(), running="a", on_the_way=[{"a": Coming()}], **AHEAD)
    silent = ran({"a": 1}, "a", emitted={"a": 1}, emitted_at={})
    assert in_flight.out_of_turn(history, silent) == (
        "a emits 1 tokens, but emitted_at does not give their position"
    )
    assert in_flight.out_of_turn(history, ran({"a": 1}, "a", emitted={"a": 1})) is None


@pytest.mark.parametrize(
    ("token", "emitted", "breaks"),
    [
        *((Coming(), {"a": 1}, False), (Coming(), {}, True), (Coming(), {"a": 2}, True)),
        *((None, {}, False), (None, {"a": 1}, True)),
    ],
)
def test_a_token_comes_of_the_step_that_completes(token, emitted, breaks):
    history = before(promised(), running="a", on_the_way=[{"a": token}], **AHEAD)
    step = ran({"a": 1}, "a", emitted=emitted)
    assert (budget.emission_wrong(history, step) is not None) is breaks


@pytest.mark.parametrize(("connector", "breaks"), [(True, False), (False, True)])
def test_with_a_connector_the_token_in_flight_of_a_victim_may_be_dropped(connector, breaks):
    keys = {**AHEAD, "kv_connector": connector, "revision": "0.25"}
    history = before(promised(), running="a", on_the_way=[{"a": Coming()}], **keys)
    step = ran({}, "", "a", preempted=("a",))
    assert (budget.emission_wrong(history, step) is not None) is breaks


def test_a_victim_whose_blocks_stay_taken_is_judged_by_one_rule():
    history = before(
        *(promised("a"), promised("b")),
        on_the_way=[{"a": Coming(), "b": Coming()}],
        **{**AHEAD, "kv_connector": True, "num_blocks": 8},
    )
    history.last = ran({}, "ab", blocks={"a": (1, 2), "b": (3, 4)}, free_blocks=4)
    step = ran({"a": 1}, "a", "b", preempted=("b",))
    assert preemption.needless_preemption(history, step) is None
    assert "and 4 were free before b gave back its blocks" in str(
        loads.preempted_for_nothing(history, step)
    )


def test_no_token_comes_of_a_step_that_is_still_on_its_way():
    history = before(promised(), running="a", on_the_way=[{"a": Coming()}], **LONG)
    step = ran({"a": 1}, "a", emitted={"a": 1})
    assert common.tokens_wrong(history, step) == "a is not scheduled, but emitted 1"


def test_what_is_on_its_way_counts_as_known():
    history = before(promised(), running="a", **AHEAD)
    assert budget.beyond_known(history, ran({"a": 1}, "a")) is None
    assert budget.beyond_known(history, ran({"a": 2}, "a")) is not None


def test_a_request_that_is_preempted_may_end_with_what_was_on_its_way():
    history = before(promised(emitted=7), running="a", on_the_way=[{"a": Coming()}], **AHEAD)
    step = ran({}, preempted=("a",), emitted={"a": 1}, finished={"a": "length"})
    assert preemption.victim_keeps_something(history, step) is None
    assert preemption.victim_keeps_something(history, ran({}, preempted=("a",))) is not None


@pytest.mark.parametrize(
    ("keys", "barren", "breaks"), [({}, 2, True), (LONG, 3, False), (LONG, 4, True)]
)
def test_more_steps_may_be_idle_where_more_are_in_flight(keys, barren, breaks):
    history = before(request("a"), running="", **keys)
    history.barren_steps = barren
    assert (common.no_progress(history, IDLE) is not None) is breaks


def test_a_first_token_on_its_way_makes_a_request_that_decodes():
    account = request("a", 6, 6, 0, tokens_in_flight=1)
    history = before(account, running="a", **AHEAD)
    step = ran({"a": 1}, "a", prefilling=(), computed={"a": 7}, blocks={"a": (1, 2)})
    assert shown.shown_wrongly(history, step) == (
        "kind is mixed in step 0, but its only work is decode: say decode"
    )


def test_a_block_is_found_when_its_last_token_is_known():
    holder = request("a", 6, 8, 1, tokens_in_flight=1)
    newcomer = request("b", 7, content=(("a", 6), ("out:a", 1)))
    history = before(holder, newcomer, running="a", block_size=2, **AHEAD)
    step = ran({"a": 1, "b": 1}, "ab", prefix_hit={"b": 6})
    assert blocks.PREDICATES["V1-R08"].broken(history, step) is None


def test_a_run_is_followed_through_its_flights():
    history = before(request("a", 6), running="", **AHEAD)
    account = history.live["a"]
    history.observe(ran({"a": 6}, "a"))
    assert (account.tokens_in_flight, account.emitted, history.system_state.flights) == (
        1,
        0,
        ({"a": Coming(computed=6)},),
    )
    history.observe(ran({"a": 1}, "a", emitted={"a": 1}))
    assert (account.tokens_in_flight, account.emitted, account.num_tokens) == (1, 1, 8)
    history.observe(ran({}, "", "a", preempted=("a",), emitted={"a": 1}))
    assert (
        account.tokens_in_flight,
        account.emitted,
        account.regenerated,
        history.system_state.flights,
    ) == (
        0,
        2,
        2,
        (),
    )


def test_what_a_target_does_not_show_follows_from_the_flights():
    history = before(request("a", 6), running="", **AHEAD)
    history.observe(ran({"a": 6}, "a", emitted=None))
    history.observe(ran({"a": 1}, "a", emitted=None))
    assert history.live["a"].emitted == 1


@pytest.mark.parametrize(
    ("keys", "on_the_way", "early", "scheduled", "over"),
    [
        ({}, (), 0, ["b"], ["b"]),
        (AHEAD, (), 0, ["b"], []),
        (AHEAD, ("a",), 0, ["b"], ["a"]),
        (AHEAD, ("a",), 0, [], ["a"]),
        (AHEAD, (), 0, [], []),
        (LONG, ("a",), 0, ["b"], []),
        (LONG, ("a", "c"), 0, ["b"], ["a"]),
        (FAST, (), 0, ["b"], ["b"]),
        (FAST, (), 1, ["b"], ["b"]),
        (FAST, (), 2, ["b"], []),
        (FAST, ("a",), 0, ["b"], ["a"]),
        (FAST, (), 0, [], []),
    ],
)
def test_the_oldest_step_completes(keys, on_the_way, early, scheduled, over):
    step = ran(dict.fromkeys(scheduled, 1)) if scheduled else IDLE
    history = book(**keys)
    flying = tuple({name: Coming(requests=1)} for name in on_the_way)
    history.system_state = VllmState(flights=flying, early=early)
    assert list(flights.completes(history, step)) == over


def test_of_two_victims_the_last_is_the_one_that_was_admitted_first():
    """r2 came before r4, was set aside while it was computed, and was admitted behind it: of both,
    r2 is preempted first, and that is not enough."""
    prompts = {"r0": (0, 248, 4), "r2": (2, 219, 1), "r3": (2, 1, 1), "r4": (2, 129, 1)}
    config = {
        **{"block_size": 16, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 66},
        **{"max_model_len": 256, "long_prefill_token_threshold": 47, "reserve_full_isl": False},
        **{"enable_prefix_caching": False, "async_scheduling": True, "pipeline_parallel_size": 3},
    }
    scenario = Scenario(
        system="vllm",
        revision="documented",
        config=full_config("vllm", "documented", config),
        requests=tuple(
            Request(id=name, arrival=arrival, prompt=((name, prompt),), max_tokens=tokens)
            for name, (arrival, prompt, tokens) in prompts.items()
        ),
    )
    preempted: list[tuple[str, ...]] = []
    outcome = replay(
        ModelTarget(),
        scenario,
        load("vllm"),
        lambda _, step: preempted.append(step.preempted or ()),
    )
    assert outcome.broken == []
    assert ("r2", "r4") in preempted


def test_the_order_of_preempted_requests_is_not_judged_where_it_is_not_shown():
    first, second = request("a", 6, preemptions=1), request("b", 6, preemptions=1)
    history = before(first, second, running="", **LONG)
    step = ran({"b": 6}, "b")
    assert history.last is not None
    history.last = replace(history.last, waiting=("a", "b"))
    assert queues.overtaken(history, step) == "b admitted, but a in front of it still waits"
    history.last = replace(history.last, waiting=None)
    history.answers.clear()
    assert queues.overtaken(history, step) is None
    assert queues.out_of_order(history, ran({"b": 3, "a": 3}, "ba")) is None


DRAFTS = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "enable_prefix_caching": False}


def test_a_loaded_request_that_is_padded_reads_its_own_tokens_after_its_padding():
    config = {**AHEAD, **DRAFTS, "kv_connector": True}
    scenario = Scenario(
        system="vllm",
        revision="0.33",
        config=full_config("vllm", "0.33", config),
        requests=(Request(id="a", arrival=0, prompt=(("a", 2),), max_tokens=2, external_tokens=2),),
    )
    assert replay(ModelTarget(), scenario, load("vllm")).broken == []


def test_drafts_on_their_way_count_until_they_are_found_wrong():
    account = request("a", 6, accepted=(1,))
    history = before(account, running="", **AHEAD, **DRAFTS)
    history.observe(ran({"a": 6}, "a"))
    assert (
        account.tokens_in_flight,
        account.drafts_in_flight,
        account.drafted,
        account.num_tokens,
    ) == (1, 0, 2, 7)
    history.observe(ran({"a": 3}, "a", emitted={"a": 1}))
    assert (
        account.tokens_in_flight,
        account.drafts_in_flight,
        account.computed,
        account.num_tokens,
    ) == (
        1,
        2,
        9,
        10,
    )
    right = ran({"a": 3}, "a", emitted={"a": 2}, computed={"a": 11})
    assert preemption.counter_wrong(history, right) is None
    assert preemption.counter_wrong(history, replace(right, computed={"a": 12})) == (
        "a has 12 computed tokens; 9 before, 0 cached and 3 scheduled minus 1 rejected make 11"
    )
    assert speculation.verified_wrongly(history, right) is None
    assert speculation.some_right_some_wrong(history, right)
    assert speculation.verified_wrongly(history, replace(right, emitted={"a": 3})) == (
        "a emits 3 tokens; 1 of its 2 drafts are correct, so it must emit 2"
    )
    history.observe(right)
    assert (
        account.emitted,
        account.tokens_in_flight,
        account.drafts_in_flight,
        account.computed,
    ) == (3, 1, 2, 11)
    assert account.verified == 1


def test_where_every_position_may_be_taken_a_request_is_passed_over():
    full = request("a", 6, 11, 2, tokens_in_flight=1, drafts_in_flight=2, drafted=2)
    history = before(full, running="a", max_model_len=12, **AHEAD, **DRAFTS)
    assert flights.passed_over(history.config, full)
    assert not flights.passed_over({**history.config, "max_model_len": 13}, full)
