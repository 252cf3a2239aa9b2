"""Drafts: proposed after a token, computed with the next step, and counted only where right."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import scheduler, speculation
from schedproof.model.vllm.config import read_config
from schedproof.model.vllm.state import State

from .build import SMALL, config, decoding, pool, stepped, waiting

DRAFTS = {"num_speculative_tokens": 3}


def test_a_prompt_is_computed_without_drafts_and_gets_them_with_its_first_token():
    drafting = config(**DRAFTS)
    state, seen = stepped(drafting, State(waiting=(waiting(6),)))
    assert (seen["scheduled"], seen["emitted"]) == ({"new": 6}, {"new": 1})
    [sequence] = state.running
    assert (sequence.computed, sequence.drafted, sequence.verified) == (6, 3, 0)


@pytest.mark.parametrize(
    ("right", "emitted"), [((), 1), ((0,), 1), ((2,), 3), ((3,), 4), ((9,), 4)]
)
def test_the_drafts_that_are_right_come_out_and_one_token_more(right, emitted):
    sequence = decoding("a", 6, 1, 2, drafted=3, accepted=right)
    state, seen = stepped(config(**DRAFTS), State(running=(sequence,), pool=pool(None, 2)))
    assert (seen["scheduled"], seen["emitted"]) == ({"a": 4}, {"a": emitted})
    assert seen["computed"] == {"a": 6 + emitted}
    assert state.running[0].verified == 1


def test_each_time_the_next_number_of_the_scenario_counts_over_and_over():
    drafting = config(**DRAFTS, max_num_seqs=1)
    state = State(running=(decoding("a", 6, 1, 2, drafted=3, accepted=(2, 0)),), pool=pool(None, 2))
    emitted = []
    for _ in range(3):
        state, seen = stepped(drafting, state)
        emitted += seen["emitted"].values()
    assert emitted == [3, 1, 3]


def test_no_token_comes_out_beyond_the_last():
    sequence = decoding("a", 6, 1, 2, drafted=3, accepted=(3,), generated=7)._replace(computed=12)
    _, seen = stepped(config(**DRAFTS), State(running=(sequence,), pool=pool(None, 4)))
    assert (seen["emitted"], seen["finished"]) == ({"a": 2}, {"a": "length"})


def test_the_budget_cuts_drafts_and_the_length_of_the_model_does():
    sequence = decoding("a", 6, 1, 2, drafted=3)
    assert speculation.wanted(config(**DRAFTS), sequence) == 4
    assert speculation.wanted(config(**DRAFTS, max_model_len=9), sequence) == 2
    tight = config(**DRAFTS, max_num_batched_tokens=2, max_num_seqs=2)
    plan = scheduler.schedule(tight, State(running=(sequence,), pool=pool(None, 2)))
    assert plan.scheduled == {"a": 2}


def test_a_preempted_request_loses_its_drafts():
    running = (decoding("a", 8, 1, 2, drafted=3), decoding("b", 8, 3, 4, drafted=3))
    plan = scheduler.schedule(
        config(**DRAFTS, num_blocks=5), State(running=running, pool=pool(5, 4))
    )
    assert plan.preempted == ("b",)
    assert plan.waiting[0].drafted == 0


@pytest.mark.parametrize(("lookahead", "blocks"), [(0, 3), (3, 4)])
def test_lookahead_takes_blocks_beyond_what_is_computed(lookahead, blocks):
    drafting = config(**DRAFTS, num_lookahead_tokens=lookahead)
    sequence = decoding("a", 6, 1, 2, drafted=3)
    state, _ = stepped(drafting, State(running=(sequence,), pool=pool(None, 2)))
    assert len(state.running[0].blocks) == blocks


def test_a_block_is_found_only_when_its_drafts_were_verified():
    drafting = config(**DRAFTS, enable_prefix_caching=True)
    sequence = decoding("a", 6, 1, 2, drafted=3, accepted=(3,), output_len=20, published=1)
    state, _ = stepped(drafting, State(running=(sequence,), pool=pool(None, 2)))
    assert state.running[0].published == 1
    state, _ = stepped(drafting, state)
    assert state.running[0].published == 2


EAGLE = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "enable_prefix_caching": True}


def hits(revision, *prompts, **changes):
    """The prefix hits of requests that come one after the other; each generates four tokens."""
    target = ModelTarget()
    assert target.start("vllm", revision, {**SMALL, **EAGLE, **changes})["ok"]
    found = []
    for number, prompt in enumerate(prompts):
        request = {"id": str(number), "prompt": prompt, "max_tokens": 4, "accepted": [1]}
        assert target.add(request) == {"ok": True}
        found.append(target.step()["step"]["prefix_hit"][str(number)])
        for _ in range(6):
            target.step()
    return found


@pytest.mark.parametrize("ahead", [False, True])
def test_with_eagle_the_last_block_of_a_hit_is_computed_again(ahead):
    same, other = [["p", 12]], [["p", 8], ["q", 4]]
    assert hits("documented", same, same, other, async_scheduling=ahead) == [0, 4, 4]


@pytest.mark.parametrize("ahead", [False, True])
def test_from_0_33_on_a_hit_with_eagle_ends_where_the_next_token_differs(ahead):
    same, other = [["p", 12]], [["p", 8], ["q", 4]]
    assert hits("0.33", same, same, other, same, async_scheduling=ahead) == [0, 8, 4, 8]


def test_with_a_connector_0_33_computes_the_last_block_of_a_hit_again():
    same = [["p", 12]]
    assert hits("0.33", same, same, kv_connector=True) == [0, 4]


def test_from_0_33_on_a_block_is_found_with_eagle_once_its_next_token_is_known():
    first, goes_on = [["p", 8]], [["p", 8], ["out:0", 1], ["q", 4]]
    assert hits("0.33", first, goes_on, first) == [0, 8, 4]


def test_from_0_33_on_a_block_in_front_of_the_end_of_an_answer_has_another_name():
    target = ModelTarget()
    assert target.start("vllm", "0.33", {**SMALL, **EAGLE})["ok"]
    ends = {"id": "a", "prompt": [["p", 6]], "max_tokens": 9, "output_len": 3, "accepted": [0]}
    assert target.add(ends) == {"ok": True}
    for _ in range(5):
        target.step()
    goes_on = {"id": "b", "prompt": [["p", 6], ["out:a", 3]], "max_tokens": 1}
    assert target.add(goes_on) == {"ok": True}
    seen = target.step()["step"]
    assert (seen["scheduled"], seen["finished"]) == ({"b": 5}, {"b": "length"})


BY_BATCH_SIZE = "num_speculative_tokens_per_batch_size"


@pytest.mark.parametrize(("requests", "drafts"), [(1, 2), (2, 1), (3, 1), (4, 0), (5, 0)])
def test_the_number_of_drafts_depends_on_the_number_of_requests_in_a_step(requests, drafts):
    ranges = ((1, 1, 9), (2, 2, 1), (4, 4, 0))
    dynamic = config(num_speculative_tokens=2, **{BY_BATCH_SIZE: ranges})
    assert speculation.drafts_after(dynamic, requests) == drafts
    assert speculation.drafts_after(config(num_speculative_tokens=2), requests) == 2


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_with_more_requests_is_followed_by_fewer_drafts(ahead):
    ranges = [[1, 1, 3], [2, 4, 1]]
    keys = {"num_speculative_tokens": 3, BY_BATCH_SIZE: ranges, "num_lookahead_tokens": 3}
    target = ModelTarget()
    assert target.start("vllm", "0.33", {**SMALL, **keys, "async_scheduling": ahead})["ok"]
    request = {"prompt": [["a", 8]], "max_tokens": 20, "accepted": [3]}
    assert target.add({"id": "a", **request}) == {"ok": True}
    seen = [target.step()["step"]["scheduled"]["a"]]
    assert target.add({"id": "b", **request}) == {"ok": True}
    seen += [target.step()["step"]["scheduled"]["a"] for _ in range(2)]
    assert seen == [8, 4, 2]


@pytest.mark.parametrize(
    ("ranges", "more", "problem"),
    [
        ([], {}, "is empty; valid: null, or a list that begins with batch size 1"),
        ([[2, 4, 1]], {}, "[0][0]: 2; valid: 1"),
        ([[1, 4, 1], [4, 5, 0]], {}, "[1][0]: 4; valid: more than 4, and at most 5"),
        ([[1, 4, 1]], {"num_speculative_tokens": 0}, "a list with no num_speculative_tokens is"),
        ([[1, 4, 1]], {"pipeline_parallel_size": 2}, "a list with a pipeline is not modelled"),
        ([[1, 4, 1]], {"kv_connector": True}, "a list with a kv_connector is not modelled"),
    ],
)
def test_ranges_of_batch_sizes_are_checked(ranges, more, problem):
    with pytest.raises(InputError) as caught:
        read_config({"num_speculative_tokens": 2, BY_BATCH_SIZE: ranges, **more}, "0.33")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("revision", "more", "tokens"),
    [
        ("documented", {}, 1),
        ("documented", {"use_v2_model_runner": True}, 3),
        ("0.25", {}, 3),
    ],
)
def test_a_request_that_missed_a_step_has_no_drafts_that_the_worker_lacks(revision, more, tokens):
    """The first two requests spend the budget until they end (V1-R68)."""
    values = {**SMALL, "max_num_batched_tokens": 6, "max_num_seqs": 3, "async_scheduling": True}
    drafts = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, **more}
    target = ModelTarget()
    target.start("vllm", revision, values | drafts)
    for name in ("r0", "r1", "r2"):
        target.add({"id": name, "prompt": [[name, 2]], "max_tokens": 4})
    steps = [target.step()["step"] for _ in range(12)]
    missed = False
    for step in steps[1:]:
        if "r2" in step["scheduled"] and missed:
            break
        missed = "r2" not in step["scheduled"] and bool(step["scheduled"])
    assert step["scheduled"]["r2"] == tokens
    assert ("r2" in step["sent"].get("placeholders", ())) == (tokens > 1)
