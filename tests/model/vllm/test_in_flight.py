"""Decisions in flight: what is promised, what completes when, and who is passed over."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import completion, in_flight, scheduler
from schedproof.model.vllm.config import read_config
from schedproof.model.vllm.model import make_model
from schedproof.model.vllm.speculation import most_slots, verify
from schedproof.model.vllm.state import Coming, State

from .build import config, decoding, stepped, waiting

AHEAD = {"async_scheduling": True}
PIPELINE = {"pipeline_parallel_size": 2}
LONG = {"pipeline_parallel_size": 3}
V2 = {"use_v2_model_runner": True}
SMALL = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 8, "max_model_len": 32}


def of(**more):
    return config(**more)


def run(steps, *prompts, tokens=3, **more):
    """The first steps of requests a, b, ... that arrive together."""
    target = ModelTarget()
    assert target.start("vllm", "documented", {**SMALL, **more})["ok"]
    for name, prompt in zip("abcd", prompts, strict=False):
        values = {"id": name, "prompt": [[name, prompt]], "max_tokens": tokens}
        assert target.add(values)["ok"]
    return [target.step()["step"] for _ in range(steps)]


@pytest.mark.parametrize(
    ("keys", "depth"),
    [
        *(({}, 1), (AHEAD, 2), (PIPELINE, 2), (LONG, 3), (AHEAD | LONG, 3)),
        *((V2, 1), (V2 | AHEAD, 2), (V2 | LONG, 3), (V2 | AHEAD | LONG, 4)),
    ],
)
def test_so_many_decisions_are_on_their_way_at_most(keys, depth):
    assert read_config(keys, "documented").depth == depth


def names_scheduled(steps):
    return ["".join(step["scheduled"]) for step in steps]


def test_with_the_second_runner_a_request_decodes_once_for_each_stage_of_a_pipeline():
    assert names_scheduled(run(7, 4, tokens=4, **V2 | AHEAD)) == [*4 * "a", "", "", ""]
    alone = run(8, 4, tokens=3, **V2 | AHEAD | LONG)
    assert names_scheduled(alone) == ["a", "", "", "a", "", "", "a", ""]
    both = run(8, 8, 4, tokens=3, **V2 | AHEAD | LONG)
    assert names_scheduled(both) == ["a", "b", "", "a", "b", "", "a", "b"]
    assert names_scheduled(run(4, 4, tokens=3, **AHEAD | LONG)) == [*3 * "a", ""]


def test_a_chunk_of_a_prompt_does_not_wait_for_the_stages():
    assert names_scheduled(run(6, 20, tokens=2, **V2 | AHEAD | LONG)) == [*3 * "a", "", "", "a"]


def test_requests_that_run_and_wait_rest_one_step_less_after_each_step():
    running, waits = decoding("a", 4), waiting(3)
    state = State(running=(running._replace(rests=2),), waiting=(waits._replace(rests=1), waits))
    state = in_flight.count_down(state)
    assert [sequence.rests for sequence in (*state.running, *state.waiting)] == [1, 0, 0]


def test_keys_that_say_nothing_are_absent():
    nothing = {"async_scheduling": False, "pipeline_parallel_size": 1, "early_completions": 0}
    read = read_config(nothing, "documented")
    assert read == read_config({}, "documented")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (AHEAD | {"num_speculative_tokens": 2}, "$.config.num_lookahead_tokens: 0 with async"),
        (
            {"early_completions": 1},
            "$.config.early_completions: 1 needs several decisions in flight",
        ),
        (AHEAD | {"early_completions": -1}, "$.config.early_completions: -1: Expected `int` >= 0"),
        ({"async_scheduling": 0}, "$.config.async_scheduling: 0: Expected `bool`"),
        ({"pipeline_parallel_size": 0}, "$.config.pipeline_parallel_size: 0: Expected `int` >= 1"),
    ],
)
def test_what_is_not_modelled_is_refused_with_its_path(values, says):
    with pytest.raises(InputError) as caught:
        read_config(values, "documented")
    assert str(caught.value).startswith(says)


def test_without_the_keys_a_step_completes_at_once_and_shows_no_place():
    steps = run(3, 6)
    assert [step["emitted"] for step in steps] == [{"a": 1}] * 3
    assert all("emitted_at" not in step for step in steps)


def test_a_step_is_decided_while_the_one_before_it_is_computed():
    steps = run(4, 6, **AHEAD)
    assert [step["scheduled"] for step in steps] == [{"a": 6}, {"a": 1}, {"a": 1}, {}]
    assert [step["emitted_at"] for step in steps] == [{}, {"a": 0}, {"a": 1}, {"a": 2}]
    assert steps[-1]["finished"] == {"a": "length"}


def test_in_a_pipeline_a_request_waits_for_its_token_and_others_take_the_turn():
    steps = run(7, 6, 6, **PIPELINE)
    decided = [list(step["scheduled"]) for step in steps]
    assert decided == [["a", "b"], ["b"], ["a"], ["b"], ["a"], ["b"], []]
    assert [list(step["emitted"]) for step in steps] == [
        [],
        ["a"],
        ["b"],
        ["a"],
        ["b"],
        ["a"],
        ["b"],
    ]


def test_a_token_that_ends_a_request_makes_the_step_ahead_of_it_vain():
    target = ModelTarget()
    target.start("vllm", "documented", {**SMALL, **AHEAD})
    target.add({"id": "a", "prompt": [["a", 3]], "max_tokens": 5, "output_len": 2})
    steps = [target.step()["step"] for _ in range(4)]
    assert [step["scheduled"] for step in steps] == [{"a": 3}, {"a": 1}, {"a": 1}, {}]
    assert steps[2]["finished"] == {"a": "eos"}
    assert steps[3]["emitted"] == {}


@pytest.mark.parametrize("inside", [False, True])
def test_a_token_of_a_request_that_was_aborted_does_not_come(inside):
    target = ModelTarget()
    target.start("vllm", "documented", {**SMALL, **AHEAD})
    target.add({"id": "a", "prompt": [["a", 3]], "max_tokens": 5})
    target.step()
    target.abort("a", inside)
    seen = target.step()["step"]
    assert (seen["emitted"], seen["finished"]) == ({}, {"a": "aborted"})


def test_a_fast_worker_is_done_before_the_next_decision_until_one_stays_on_its_way():
    steps = run(6, 6, tokens=5, early_completions=2, **AHEAD)
    assert [step["scheduled"] for step in steps] == [{"a": 6}, *4 * [{"a": 1}], {}]
    places = [step["emitted_at"] for step in steps]
    assert places == [{"a": 0}, {"a": 1}, {}, {"a": 2}, {"a": 3}, {"a": 4}]


def test_a_worker_that_was_waited_for_is_fast_anew():
    steps = run(8, 6, 6, tokens=9, early_completions=1, pipeline_parallel_size=3)
    on_their_way, remaining = [], 0
    for step in steps:
        remaining += bool(step["scheduled"]) - bool(step["emitted"])
        on_their_way.append(remaining)
    assert on_their_way == [0, 1, 0, 0, 1, 0, 0, 1]


def test_the_oldest_completes_where_the_queue_is_full_or_nothing_was_decided():
    first, second = {"a": Coming(0)}, {"a": Coming(1)}
    single, two = State(in_flight=(first,)), State(in_flight=(first, second))
    assert in_flight.complete_oldest(of(**PIPELINE), two, True) == (
        State(in_flight=(second,)),
        first,
    )
    assert in_flight.complete_oldest(of(**PIPELINE), single, True) == (single, {})
    assert in_flight.complete_oldest(of(**PIPELINE), single, False) == (State(), first)
    assert in_flight.complete_oldest(of(**PIPELINE), State(), False) == (State(), {})


def test_a_decision_completes_early_so_many_times_in_a_row():
    of_fast = of(early_completions=2, **LONG)
    state, done = State(), []
    for place in range(6):
        coming = {"a": Coming(place)}
        state = state._replace(in_flight=(*state.in_flight, coming))
        state, flight = in_flight.complete_oldest(of_fast, state, True)
        done.append(flight.get("a", Coming(-1)).place)
    assert done == [0, 1, -1, 2, 3, -1]
    assert (len(state.in_flight), state.early) == (2, 0)


def test_a_token_is_promised_of_what_computes_all_that_is_known():
    chunk = waiting(9, name="chunk", computed=8)
    last = waiting(8, name="last", computed=8)
    ahead = decoding("ahead", 6, promised=1)._replace(computed=8)
    state = State(running=(chunk, last, ahead))
    scheduled = {"chunk": 4, "last": 4, "ahead": 1}
    flight = completion.tokens_in_flight(state.running, scheduled)
    assert flight == {"chunk": None, "last": Coming(0), "ahead": Coming(ahead.generated + 1)}
    after = in_flight.set_off(of(**AHEAD), state.running, flight)
    assert [sequence.promised for sequence in after] == [0, 1, 2]


def test_a_decision_is_in_flight_until_it_completes():
    state, _ = stepped(of(**AHEAD), State(waiting=(waiting(4, name="a"),)))
    assert state.in_flight == ({"a": Coming(0)},)
    state, _ = stepped(of(), State(waiting=(waiting(4, name="a"),)))
    assert state.in_flight == ()


@pytest.mark.parametrize(
    ("keys", "promised", "generated", "passed"),
    [
        (AHEAD, 0, 1, False),
        (AHEAD, 1, 1, False),
        (AHEAD, 1, 2, True),
        (PIPELINE, 0, 1, False),
        (PIPELINE, 1, 1, True),
    ],
)
def test_what_has_nothing_to_compute_is_passed_over(keys, promised, generated, passed):
    sequence = waiting(4, 3, promised=promised, generated=generated)
    assert (scheduler.behind(of(**keys), sequence) == 0) == passed


def test_a_promise_is_kept_once_and_none_is_left_after_a_preemption():
    assert in_flight.deliver(waiting(4, promised=2), Coming(0)).promised == 1
    assert in_flight.deliver(waiting(4), Coming(0)).promised == 0


def test_a_block_is_found_as_soon_as_its_last_token_is_known():
    sequence = decoding("a", 4, 1, 2, promised=1)._replace(computed=5)
    kept, pool = in_flight.publish(of(enable_prefix_caching=True, **AHEAD), Pool(), sequence)
    assert (kept.published, list(pool.cached.values())) == (1, [(1,)])
    early = sequence._replace(promised=2)
    kept, pool = in_flight.publish(of(enable_prefix_caching=True, **AHEAD), Pool(), early)
    assert (kept.published, pool) == (0, Pool())


def test_a_preempted_request_is_set_aside_while_it_is_computed_and_others_go():
    again, other = waiting(4, name="again"), waiting(4, name="other")
    state = State(waiting=(again, other), in_flight=({"again": Coming(0)},))
    plan = scheduler.schedule(of(**LONG), state)
    assert list(plan.scheduled) == ["other"]
    assert plan.waiting == (again._replace(aside=True),)
    assert scheduler.schedule(of(**LONG), state._replace(in_flight=())).waiting == ()


DRAFTS = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "enable_prefix_caching": False}


def test_drafts_are_computed_ahead_and_those_that_were_wrong_are_taken_back():
    target = ModelTarget()
    target.start("vllm", "documented", {**SMALL, **AHEAD, **DRAFTS})
    target.add({"id": "a", "prompt": [["a", 6]], "max_tokens": 6, "accepted": [1, 2]})
    steps = [target.step()["step"] for _ in range(5)]
    assert [step["scheduled"] for step in steps] == [{"a": 6}, {"a": 3}, {"a": 3}, {"a": 3}, {}]
    assert [step["emitted"] for step in steps] == [{}, {"a": 1}, {"a": 2}, {"a": 3}, {}]
    assert [step["emitted_at"] for step in steps] == [{}, {"a": 0}, {"a": 1}, {"a": 3}, {}]
    assert [step["computed"].get("a") for step in steps] == [6, 9, 11, None, None]


def test_in_a_pipeline_drafts_come_with_the_token_that_they_follow():
    target = ModelTarget()
    target.start("vllm", "documented", {**SMALL, **PIPELINE, "num_speculative_tokens": 2})
    target.add({"id": "a", "prompt": [["a", 6]], "max_tokens": 6, "accepted": [1, 2]})
    steps = [target.step()["step"] for _ in range(6)]
    assert [step["scheduled"] for step in steps] == [{"a": 6}, {}, {"a": 3}, {}, {"a": 3}, {}]
    assert [step["emitted"] for step in steps] == [{}, {"a": 1}, {}, {"a": 2}, {}, {"a": 3}]
    assert [step["computed"].get("a") for step in steps] == [6, 6, 9, 8, 11, None]


def test_in_a_pipeline_a_preempted_request_gets_no_drafts():
    drafting = of(**PIPELINE, num_speculative_tokens=2)
    flight = {"a": Coming(0)}
    assert verify(drafting, decoding("a", 8, 1, 2), 0, 1, flight).drafted == 2
    assert verify(drafting, waiting(8), 0, 1, flight).drafted == 0


def test_drafts_of_every_decision_in_flight_may_need_blocks():
    stages = {"pipeline_parallel_size": 3}
    assert most_slots(of(**stages, num_speculative_tokens=2), 8) == 10
    assert most_slots(of(**stages, **AHEAD, **DRAFTS), 8) == 8 + 3 * 2 + 2


def test_where_all_positions_may_be_taken_a_request_waits_for_what_is_on_its_way():
    keys = {**SMALL, **AHEAD, **DRAFTS, "max_model_len": 11}
    target = ModelTarget()
    target.start("vllm", "documented", keys)
    target.add({"id": "a", "prompt": [["a", 6]], "max_tokens": 5, "accepted": [0]})
    scheduled = [target.step()["step"]["scheduled"] for _ in range(6)]
    assert scheduled == [{"a": 6}, {"a": 3}, {"a": 1}, {"a": 2}, {}, {"a": 1}]


def test_a_request_by_itself_may_need_blocks_for_the_drafts_of_two_decisions():
    model = make_model("documented", {**SMALL, **DRAFTS, "num_blocks": 3})
    ahead = make_model("documented", {**SMALL, **AHEAD, **DRAFTS, "num_blocks": 3})
    request = Request(id="a", arrival=0, prompt=(("a", 6),), max_tokens=3)
    assert model.refusal(request) is None
    assert ahead.refusal(request) == (
        "prompt + max_tokens - 1 = 8 tokens, 14 with drafts, needs 4 blocks, but the pool has 3"
    )
