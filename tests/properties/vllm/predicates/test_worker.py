"""What the worker is told, by example: whom it knows, tables, counts, tokens, who has ended."""

import pytest
from msgspec.structs import replace

from schedproof.model.observation import Sent
from schedproof.model.scenario import Request
from schedproof.properties.vllm.history.encoder import Input, inputs_of
from schedproof.properties.vllm.history.run import VllmState, worker_after
from schedproof.properties.vllm.history.worker import Held
from schedproof.properties.vllm.predicates import worker

from .build import book, ran, request

RUNS = request("a", 6, 6, 1)


def before(*accounts, worker, computed=(), **more):
    """The history before a step; `worker`: what the worker holds."""
    history = book(*accounts, **more)
    history.last = replace(history.last, computed=dict(computed))
    history.system_state = VllmState(worker=worker)
    return history


def after(scheduled, computed, new_blocks=(), **more):
    sent = Sent(computed=computed, blocks=dict(new_blocks), **more.pop("sent", {}))
    return ran(scheduled, "".join(scheduled), sent=sent, **more)


def test_a_request_goes_on_only_at_a_worker_that_has_it():
    knows = before(RUNS, worker={"a": Held(((1, 2),))})
    assert worker.unknown_to_the_worker(knows, after({"a": 1}, {"a": 6})) is None
    assert worker.worker_is_told(knows, after({"a": 1}, {"a": 6}))
    assert worker.unknown_to_the_worker(knows, after({"a": 1}, {})) == (
        "a is scheduled, but the worker is not told about it"
    )
    again = after({"a": 1}, {"a": 6}, sent={"new": ("a",)})
    assert worker.unknown_to_the_worker(knows, again) == (
        "a is sent as a new request, but the worker still has it"
    )
    resumed = after({"a": 1}, {"a": 6}, sent={"resumed": ("a",)})
    assert worker.unknown_to_the_worker(knows, resumed) == (
        "a is sent as a resumed request, but it was not preempted"
    )
    dropped = after({"a": 1}, {"a": 6}, sent={"dropped": ("a",)})
    nothing = "a is sent in part, but the worker does not have it"
    assert worker.unknown_to_the_worker(knows, dropped) == nothing
    assert (
        worker.unknown_to_the_worker(before(RUNS, worker={}), after({"a": 1}, {"a": 6})) == nothing
    )


def test_a_request_that_starts_is_sent_whole():
    starts, first = request("a", 6), {"new_blocks": {"a": ((1, 2),)}}
    new = after({"a": 6}, {"a": 0}, **first, sent={"new": ("a",)})
    resumed = after({"a": 6}, {"a": 0}, **first, sent={"resumed": ("a",)})
    assert worker.unknown_to_the_worker(before(starts, worker={}), new) is None
    preempted = before(starts, worker={"a": Held(((7, 8),))})
    assert worker.unknown_to_the_worker(preempted, resumed) is None
    assert worker.unknown_to_the_worker(preempted, after({"a": 6}, {"a": 0}, **first)) == (
        "a starts again, but the worker is told to continue it"
    )
    # The second model runner forgets a request that is preempted.
    forgets = after({"a": 6}, {"a": 0}, **first, sent={"new": ("a",), "dropped": ("a",)})
    assert worker.unknown_to_the_worker(preempted, forgets) is None


def test_new_blocks_are_appended_and_those_of_a_whole_request_replace_the_table():
    history = before(RUNS, worker={"a": Held(((1, 2),))})
    grows = after({"a": 1}, {"a": 6}, {"a": ((3,),)}, blocks={"a": (1, 2, 3)})
    assert worker.table_grows(history, grows)
    assert worker.table_differs(history, grows) is None
    assert worker_after(history, grows) == {"a": Held(((1, 2, 3),))}
    whole = after({"a": 1}, {"a": 6}, {"a": ((3,),)}, sent={"resumed": ("a",)}, blocks={"a": (3,)})
    assert worker.table_differs(history, whole) is None
    order = after({"a": 1}, {"a": 6}, {"a": ((3,),)}, blocks={"a": (2, 1, 3)})
    assert worker.table_differs(history, order) == (
        "block 0 of a in group 0: the scheduler has 2, the worker 1"
    )
    lost = after({"a": 1}, {"a": 6}, blocks={"a": (1, 2, 3)})
    assert worker.table_differs(history, lost) == (
        "block 2 of a in group 0: the scheduler has 3, the worker none"
    )


def test_a_worker_may_keep_the_blocks_that_slid_out_of_a_window():
    history = before(RUNS, worker={"a": Held(((1, 2), (7, 8)))})
    tables = {"blocks": {"a": (1, 2, 3)}, "group_blocks": {"a": ((0, 8, 9),)}}
    slid = after({"a": 1}, {"a": 6}, {"a": ((3,), (9,))}, **tables)
    assert worker.table_differs(history, slid) is None
    other = after({"a": 1}, {"a": 6}, {"a": ((3,), (6,))}, **tables)
    assert worker.table_differs(history, other) == (
        "block 2 of a in group 1: the scheduler has 9, the worker 6"
    )


def test_the_count_that_is_sent_is_that_of_the_step_before_or_the_hit():
    history = before(RUNS, request("b", 8), worker={"a": Held()}, computed={"a": 6})
    hit = {"prefix_hit": {"b": 4}}
    assert worker.count_differs(history, after({"a": 1, "b": 4}, {"a": 6, "b": 4}, **hit)) is None
    assert worker.count_differs(history, after({"a": 1}, {"a": 7})) == (
        "a has 6 computed tokens, but the worker is told 7"
    )
    assert worker.count_differs(history, after({"b": 4}, {"b": 0}, **hit)) == (
        "b has 4 computed tokens, but the worker is told 0"
    )


def test_the_first_stage_needs_every_token_of_the_step():
    history = before(RUNS, worker={"a": Held(((1, 2),), 6)})
    enough = after({"a": 1}, {"a": 6}, sent={"tokens": {"a": 7}})
    assert worker.token_not_sent(history, enough) is None
    assert worker.token_is_sent(history, enough)
    assert worker.token_not_sent(history, after({"a": 1}, {"a": 6}, sent={"tokens": {"a": 6}})) == (
        "a computes up to token 6, but the first stage of the pipeline has only 6 of its tokens"
    )
    alone = after({"a": 1}, {"a": 6})
    assert worker.token_not_sent(history, alone) is None
    assert not worker.token_is_sent(history, alone)


def test_what_has_ended_is_dropped_with_the_next_step_that_computes():
    history = before(RUNS, worker={"a": Held(), "b": Held()})
    kept = after({"a": 1}, {"a": 6})
    assert worker.ended_request_is_dropped(history, kept)
    assert (
        worker.ended_but_kept(history, kept) == "b has ended, but the worker is not told to drop it"
    )
    assert (
        worker.ended_but_kept(history, after({"a": 1}, {"a": 6}, sent={"dropped": ("b",)})) is None
    )
    assert worker.ended_but_kept(history, after({}, {})) is None


def test_an_output_is_not_dropped_in_the_step_that_computes_it():
    image = {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8}
    history = book(request("a", 6, inputs=inputs()), **image)
    step = ran({"a": 6}, "a", encoder_inputs={"a": (0,)}, encoder_dropped=("cat",))
    assert worker.dropped_and_computed(history, step) == (
        "encoder input cat is computed for a, and its output is dropped in the same step"
    )
    other = replace(step, encoder_dropped=("dog",))
    assert worker.dropped_and_computed(history, other) is None
    assert worker.needed_soon_after_it_is_dropped(history, other)


def inputs():
    return (Input(0, "cat", 0, 4),)


ENCODER = {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8}
PICTURES = inputs_of(
    Request(id="a", arrival=0, prompt=(("cat", 4), ("dog", 4)), max_tokens=2, encoder_inputs=(0, 1))
)


@pytest.mark.parametrize(
    ("held", "message", "misses"),
    [
        (frozenset({0, 1}), {}, None),
        (frozenset({0}), {}, "dog"),
        (frozenset({0}), {"inputs": {"a": (1,)}}, None),
        (frozenset({0, 1}), {"released": {"a": (0, 1)}}, "cat"),
        (frozenset({0, 1}), {"new": ("a",), "dropped": ("a",)}, "cat"),
        (frozenset({0, 1}), {"resumed": ("a",)}, None),
        (frozenset({0}), {"inputs": None}, None),
        (None, {}, None),
    ],
)
def test_the_worker_has_the_data_of_each_input_that_it_encodes(held, message, misses):
    history = book(request("a", 9, 1, inputs=PICTURES), running="a", **ENCODER)
    history.system_state = VllmState(worker={"a": Held((), 0, held)})
    sent = Sent(computed={"a": 1}, **{"inputs": {}} | message)
    step = replace(ran({"a": 8}, "a"), encoder_inputs={"a": (0, 1)}, sent=sent)
    said = worker.encoded_without_data(history, step)
    assert said == (
        misses
        and f"encoder input {misses} is computed for a, but the worker does not have its data"
    )
    assert worker.input_of_a_known_request_is_encoded(history, step)


DRAFTS = {"num_speculative_tokens": 2}
AHEAD = {**DRAFTS, "num_lookahead_tokens": 2, "async_scheduling": True}


@pytest.mark.parametrize(
    ("tokens", "drafts", "broken"),
    [
        (3, {"a": 2}, None),
        (1, {}, None),
        (3, None, None),  # not shown
        (2, {"a": 2}, "a computes 1 drafts, but the worker is sent 2"),
        (3, {}, "a computes 2 drafts, but the worker is sent 0"),
    ],
)
def test_the_worker_gets_the_drafts_that_the_step_computes(tokens, drafts, broken):
    history = before(RUNS, worker={"a": Held()}, **DRAFTS)
    step = after({"a": tokens}, {"a": 6}, sent={"drafts": drafts})
    assert worker.drafts_differ(history, step) == broken
    assert worker.drafts_are_sent(history, step) == bool(drafts)


@pytest.mark.parametrize(
    ("options", "last", "broken"),
    [
        ({}, ("a", "b"), False),
        ({}, ("b",), True),
        # The second model runner keeps drafts; later releases take what is left for wrong drafts.
        ({"use_v2_model_runner": True}, ("b",), False),
        ({"revision": "0.25"}, ("b",), False),
    ],
)
def test_the_worker_replaces_placeholders_of_requests_in_its_last_step(options, last, broken):
    history = before(RUNS, worker={"a": Held(), "b": Held()}, **AHEAD, **options)
    history.system_state = history.system_state._replace(proposed=last)
    step = after({"a": 3}, {"a": 6}, sent={"drafts": {"a": 2}, "placeholders": ("a",)})
    assert worker.placeholder_is_sent(history, step)
    assert worker.placeholder_stays(history, step) == (
        "the drafts of a are sent as placeholders, but the worker has no drafts to replace them"
        if broken
        else None
    )


def test_a_worker_without_the_request_has_no_drafts_of_it():
    history = before(RUNS, worker={}, revision="0.25", **AHEAD)
    step = after({"a": 3}, {"a": 6}, sent={"placeholders": ("a",)})
    assert worker.placeholder_stays(history, step) is not None
