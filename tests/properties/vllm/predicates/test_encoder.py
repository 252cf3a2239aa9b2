"""Encoder inputs, by example: too many, too early, twice, and a stop for nothing."""

import pytest

from schedproof.properties.vllm.history.encoder import Input
from schedproof.properties.vllm.history.run import VllmState
from schedproof.properties.vllm.predicates import budget, encoder, queues

from .build import book, ran, request

ENCODER = {"max_num_encoder_input_tokens": 4, "encoder_cache_size": 6, "num_blocks": None}
CAT, DOG = Input(0, "cat", 0, 4), Input(1, "dog", 4, 6)


def before(*accounts, running="", **more):
    """The history before a step; the worker has these `outputs`."""
    outputs = more.pop("outputs", {})
    history = book(*accounts, running=running, **ENCODER | more, enable_prefix_caching=False)
    history.system_state = VllmState(outputs=outputs)
    return history


def pictures(name="a", computed=0, *inputs, **more):
    return request(name, 8, computed, inputs=inputs or (CAT, DOG), **more)


def after(scheduled, running="a", **more):
    values = {"encoder_inputs": {}, "encoder_dropped": (), **more}
    return ran(scheduled, running, **values)


def test_a_token_of_an_input_needs_its_output():
    history = before(pictures())
    step = after({"a": 4})
    assert encoder.output_missing(history, step) == (
        "a computes prompt tokens from the range 0 to 3, but the worker has no output for encoder "
        "input cat"
    )
    assert encoder.some_input_is_reached(history, step)
    assert encoder.output_missing(history, after({"a": 4}, encoder_inputs={"a": (0,)})) is None
    kept = before(pictures(), outputs={"cat": 4})
    assert encoder.output_missing(kept, step) is None
    assert encoder.output_missing(kept, after({"a": 4}, encoder_dropped=("cat",))) is not None


def test_what_lies_behind_an_input_needs_no_output():
    history = before(pictures(computed=6), running="a")
    step = after({"a": 2})
    assert encoder.output_missing(history, step) is None
    assert not encoder.some_input_is_reached(history, step)


def test_inputs_of_a_step_are_within_the_budget():
    history = before(pictures())
    step = after({"a": 6}, encoder_inputs={"a": (0, 1)})
    assert encoder.encoder_budget_exceeded(history, step) == (
        "the encoder computes 6 tokens > max_num_encoder_input_tokens 4"
    )
    within = after({"a": 4}, encoder_inputs={"a": (0,)})
    assert encoder.encoder_budget_exceeded(history, within) is None


def test_what_is_kept_fits_the_cache():
    history = before(pictures(computed=4), outputs={"cat": 4, "fox": 2}, running="a")
    step = after({"a": 2}, encoder_inputs={"a": (1,)})
    assert encoder.outputs_too_many(history, step) == (
        "the kept encoder outputs have 8 tokens > encoder_cache_size 6"
    )
    dropped = after({"a": 2}, encoder_inputs={"a": (1,)}, encoder_dropped=("cat",))
    assert encoder.outputs_too_many(history, dropped) is None
    assert encoder.some_output_is_dropped(history, dropped)
    assert not encoder.some_output_is_dropped(history, step)


@pytest.mark.parametrize(
    ("outputs", "inputs", "says"),
    [
        (
            {"cat": 4},
            {"a": (0,)},
            "encoder input cat is computed for a, although its output is kept",
        ),
        (
            {},
            {"a": (0,), "b": (0,)},
            "encoder input cat is computed for b, although its output is kept",
        ),
        ({}, {"a": (0, 1)}, "encoder input dog is computed, but a does not reach it"),
        ({}, {"a": (0,)}, None),
    ],
)
def test_an_input_is_computed_once_when_it_is_come_to(outputs, inputs, says):
    history = before(pictures("a"), pictures("b"), outputs=outputs)
    step = after({"a": 4, "b": 4}, "ab", encoder_inputs=inputs)
    assert encoder.computed_again(history, step) == says


def test_what_is_dropped_and_computed_in_one_step_is_not_shown_as_dropped():
    fox = Input(0, "fox", 0, 4)
    history = before(pictures("a", 0, fox), pictures("b"), outputs={"cat": 4})
    keys = {"encoder_inputs": {"a": (0,), "b": (0,)}}
    assert encoder.computed_again(history, after({"a": 4, "b": 4}, "ab", **keys)) is None


def test_an_output_is_used_again_where_none_is_computed():
    history = before(pictures(), outputs={"cat": 4})
    assert encoder.some_output_is_used_again(history, after({"a": 4}))
    fresh = after({"a": 4}, encoder_inputs={"a": (0,)})
    assert not encoder.some_output_is_used_again(before(pictures()), fresh)


def test_an_output_stays_while_a_running_request_is_in_the_middle_of_its_input():
    history = before(pictures(computed=3), running="a", outputs={"cat": 4, "fox": 2})
    step = after({"a": 1}, encoder_dropped=("cat",))
    assert encoder.dropped_while_read(history, step) == (
        "the output of encoder input cat is dropped, and a has computed 3 of its 4 tokens"
    )
    other = after({"a": 1}, encoder_dropped=("fox",))
    assert encoder.dropped_while_read(history, other) is None
    assert encoder.dropped_beside_one_in_the_middle(history, other)
    behind = before(pictures(computed=4), running="a", outputs={"cat": 4})
    assert encoder.dropped_while_read(behind, step) is None
    assert not encoder.dropped_beside_one_in_the_middle(behind, step)
    gone = after({}, "", encoder_dropped=("cat",), preempted=("a",), waiting=("a",))
    assert encoder.dropped_while_read(history, gone) is None


def test_a_request_stops_at_an_input_only_for_want_of_budget_or_room():
    history = before(pictures(computed=2), outputs={"cat": 4}, running="a")
    stops = after({"a": 2})
    assert encoder.stops_needlessly(history, stops) == (
        "a stops before encoder input 'dog', although the encoder has budget and room for it"
    )
    assert encoder.some_request_stops(history, stops)
    full = before(pictures(computed=2), outputs={"cat": 4}, running="a", encoder_cache_size=5)
    assert encoder.stops_needlessly(full, stops) is None
    assert budget.running_clamp(full, stops) is None
    assert budget.running_clamp(full, after({"a": 1})) is not None


def test_a_request_that_is_paused_at_an_input_needs_no_reason():
    history = before(pictures(computed=4), running="a", outputs={"cat": 4})
    assert encoder.some_request_stops(history, after({}))
    history.pause = "pause_all"
    assert not encoder.some_request_stops(history, after({}))


def test_a_request_at_an_input_without_its_output_is_passed_over():
    history = before(pictures(computed=4), request("b", 6, 6, 1), running="ab", outputs={"fox": 6})
    step = after({"b": 1}, "ab")
    assert queues.passed_by(history, step) is None
    state = before(pictures(computed=4), request("b", 6, 6, 1), running="ab", outputs={"dog": 2})
    assert queues.passed_by(state, step) is not None


def test_those_behind_a_request_that_waits_for_the_encoder_may_go():
    history = before(request("a", 6, 6, 1), pictures("b"), request("c"), running="a")
    step = after({"a": 1, "c": 6}, "ac", waiting=("b",))
    assert queues.overtaken(history, step) is None
    waits = after({"a": 1}, waiting=("b", "c"))
    assert queues.needless_wait(history, waits) is not None
    for computed, is_full in ((3, True), (6, False)):  # what a has computed is not read again
        fox = request("a", 6, computed, computed // 6, inputs=(Input(0, "fox", 0, 4),))
        full = before(fox, pictures("b"), request("c"), running="a", outputs={"fox": 4})
        assert (queues.needless_wait(full, waits) is None) == is_full
    state = before(request("a", 6, 6, 1), pictures("b"), request("c"), running="a")
    state.system_state = VllmState(outputs={"cat": 4, "dog": 2})
    assert queues.overtaken(state, step) is not None


def test_where_the_encoder_is_not_shown_a_stop_is_no_fault():
    history = before(pictures(computed=2), running="a")
    assert budget.running_clamp(history, ran({"a": 2}, "a")) is None
    assert budget.running_clamp(history, ran({"a": 1}, "a")) is not None
