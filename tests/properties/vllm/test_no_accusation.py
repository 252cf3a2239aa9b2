"""Runs of the model in which rules once accused it wrongly."""

import pytest
from msgspec.structs import replace

from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

SMALL = {"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 12, "max_model_len": 48}
AT_ONCE = {"kv_connector": True, "synchronous_loads": True}
EAGLE = {"num_speculative_tokens": 3, "num_lookahead_tokens": 3}


def request(name, prompt, tokens, arrival=0, **more):
    return Request(id=name, arrival=arrival, prompt=prompt, max_tokens=tokens, **more)


def loaded(**more):
    return request("a", (("a", 17),), 3, external_tokens=17, **more)


CASES = {
    "a loaded hit needs no request of its partition": (
        {**AT_ONCE, "cache_partitions": True},
        (loaded(cache_salt="x"),),
    ),
    "a loaded hit needs no request with the same next token": ({**AT_ONCE, **EAGLE}, (loaded(),)),
    "a request that ends with its failed load has found nothing": (
        {**AT_ONCE, "kv_load_failure_policy": "fail", "long_prefill_token_threshold": 7},
        (request("a", (("a", 45),), 3, external_tokens=4, load_fails_at=0),),
    ),
    "a block that is loaded and computed by a request that ends at once is found": (
        {**AT_ONCE, "max_num_batched_tokens": 14, "block_size": 8},
        (
            request("a", (("p", 8),), 1, external_tokens=8),
            request("b", (("p", 16), ("b", 6)), 1),
        ),
    ),
    "right drafts are read although another request wrote the same tokens": (
        {"block_size": 8, "num_blocks": 3, "max_num_batched_tokens": 6, "max_model_len": 24}
        | {"policy": "priority", "reserve_full_isl": False, "cache_partitions": True}
        | {"num_speculative_tokens": 2, "num_lookahead_tokens": 2},
        (
            request("a", (("a", 9),), 12, priority=1, accepted=(2, 0, 1), cache_salt="y"),
            request("b", (("a", 9), ("out:a", 11)), 1, abort_at=2, abort_inside=True),
        ),
    ),
    "a drafter that reads a token ahead splits no picture in front of another one": (
        {**EAGLE, "disable_chunked_mm_input": True, "max_num_batched_tokens": 4}
        | {"max_num_encoder_input_tokens": 4, "encoder_cache_size": 4},
        (request("a", (("p", 4), ("q", 4), ("r", 4), ("a", 3)), 1, encoder_inputs=(0, 1, 2)),),
    ),
    "with drafts, what a request computes after a failed load is found": (
        {"kv_connector": True, "block_size": 1, **EAGLE},
        (
            request("a", (("a", 3),), 1, external_tokens=3, load_fails_at=2),
            request("b", (("a", 3), ("out:a", 1)), 2, arrival=4),
        ),
    ),
    "what a request has loaded is found while its blocks are sent after an abort": (
        {"kv_connector": True, "num_blocks": 6, "reserve_full_isl": False},
        (
            replace(
                request("a", (("a", 10),), 3, external_tokens=8, load_steps=1, abort_at=3),
                abort_inside=True,
                send_steps=9,
                send_aborted=True,
            ),
            request("b", (("b", 12),), 5),
            request("c", (("a", 9),), 1, arrival=5),
        ),
    ),
    "a request that ends with an error is progress": (
        {"structured_outputs": True},
        (
            request("a", (("a", 1),), 4, grammar_fails=True),
            request("b", (("b", 1),), 4, arrival=1, grammar_steps=3),
            request("c", (("c", 1),), 4, arrival=1, grammar_fails=True),
        ),
    ),
}


AHEAD = (
    {"block_size": 1, "max_num_batched_tokens": 4, "max_model_len": 12, **EAGLE}
    | {"async_scheduling": True}
    | {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 2}]}
)
LAST_DRAFTS = (
    request("a", (("a", 2),), 9, accepted=(0, 3)),
    request("b", (("a", 2), ("out:a", 9)), 1, arrival=7),
)


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_not_accused(case):
    assert_not_accused("documented", *CASES[case])


def test_a_release_may_stop_a_token_before_an_input_that_must_be_whole():
    config = {**EAGLE, "disable_chunked_mm_input": True, "long_prefill_token_threshold": 8}
    config |= {"max_num_encoder_input_tokens": 12, "encoder_cache_size": 12}
    requests = (
        request("a", (("a", 1),), 1),
        request("b", (("b", 4), ("picture", 12)), 1, encoder_inputs=(1,)),
    )
    assert_not_accused("0.33", config | {"enable_chunked_prefill": False}, requests)


def test_a_request_may_lack_a_block_of_a_group_with_smaller_blocks():
    groups = [
        {"kind": "full"},
        {"kind": "sliding_window", "window": 129, "block_size": 32},
        {"kind": "full", "block_size": 8},
    ]
    config = {"block_size": 16, "num_blocks": 30, "max_num_batched_tokens": 128}
    config |= {"max_num_seqs": 4, "max_model_len": 128, "long_prefill_token_threshold": 15}
    config |= {"async_scheduling": True, "kv_connector": True, "kv_groups": groups}
    requests = request("a", (("a", 16),), 10), request("b", (("b", 96),), 2, arrival=1)
    assert_not_accused("0.33", config, requests)


@pytest.mark.parametrize("right", [12, 8])
def test_what_a_padded_request_loads_is_found_although_it_ends_as_it_starts(right):
    requests = (
        request("a", (("a", 12),), 1, external_tokens=12, load_fails_at=right),
        request("b", (("a", 12), ("b", 4)), 1, arrival=5),
    )
    assert_not_accused("0.33", {"kv_connector": True, **EAGLE}, requests)


def test_a_step_in_which_the_worker_reports_nothing_sends_nothing():
    aborted = request("a", (("a", 25),), 3, external_tokens=4, abort_at=0, abort_inside=True)
    requests = (
        replace(aborted, send_steps=6, send_aborted=True),
        request("b", (("b", 4),), 3),  # in step 0, the pipeline begins to fill
        request("c", (("c", 4),), 3, arrival=7),
    )
    assert_not_accused("0.33", {"kv_connector": True, "async_scheduling": True}, requests)


def test_a_step_may_end_at_a_request_that_is_then_aborted():
    config = {"kv_connector": True, "async_scheduling": True, "num_blocks": 6}
    requests = (
        request("a", (("a", 10),), 9, abort_at=3, abort_inside=True),
        request("b", (("b", 5),), 6),
        request("c", (("c", 1),), 6),
    )
    assert_not_accused("0.33", config | {"max_num_batched_tokens": 24}, requests)


def test_the_last_drafts_of_a_request_are_found_in_every_group():
    assert_not_accused("0.33", AHEAD, LAST_DRAFTS)


def test_a_block_that_slides_out_of_a_window_may_come_back_to_its_request_at_once():
    config = {"async_scheduling": True, "num_blocks": 26, "max_num_seqs": 6}
    config |= {"max_num_batched_tokens": 17}
    config |= {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 8}]}
    requests = (
        request("a", (("a", 16),), 6),
        request("b", (("b", 6),), 4, arrival=2),
        request("c", (("c", 14),), 4, arrival=2),
        request("d", (("c", 4), ("d", 1)), 1, arrival=5),
        request("e", (("c", 8), ("e", 3)), 1, arrival=5),
    )
    assert_not_accused("0.33", config, requests)


def assert_not_accused(revision, config, requests):
    scenario = Scenario(
        system="vllm", revision=revision, config={**SMALL, **config}, requests=requests
    )
    rules = [rule for rule in load("vllm", revision) if rule.checked]
    outcome = replay(ModelTarget(), scenario, rules)
    assert outcome.finished
    assert outcome.broken == []
