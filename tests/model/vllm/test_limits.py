"""Limits beside max_num_seqs, the threshold and the encoder's budget."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

ENCODER = {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8}


def target(revision="documented", **keys):
    model, usual = ModelTarget(), {"max_num_seqs": 4, "max_num_batched_tokens": 8, "block_size": 4}
    assert model.start("vllm", revision, {**usual, "max_model_len": 64, **keys})["ok"]
    return model


def ask(model, name, *prompt, tokens=3, **more):
    segments = [list(segment) for segment in prompt or ((name, 6),)]
    assert model.add({"id": name, "prompt": segments, "max_tokens": tokens, **more})["ok"]


def scheduled(model, number):
    return [model.step()["step"]["scheduled"] for _ in range(number)]


def test_fewer_requests_run_than_the_runner_has_slots():
    model = target(max_num_active_seqs=2)
    for name in "abc":
        ask(model, name, (name, 1))
    assert scheduled(model, 4) == [*3 * [{"a": 1, "b": 1}], {"c": 1}]


@pytest.mark.parametrize("revision", ["documented", "0.33"])
@pytest.mark.parametrize(("requests", "tokens"), [(1, 8), (2, 4), (4, 3)])
def test_the_threshold_leaves_each_request_its_share_of_the_budget(revision, requests, tokens):
    model = target(
        revision, long_prefill_token_threshold=3, long_prefill_token_threshold_adaptive=True
    )
    for name in "abcd"[:requests]:
        ask(model, name, (name, 9))
    assert next(iter(scheduled(model, 1)[0].values())) == tokens


@pytest.mark.parametrize("revision", ["documented", "0.33"])
def test_steps_between_prefills_only_decode(revision):
    model = target(revision, prefill_schedule_interval=3)
    ask(model, "a", ("a", 4), tokens=9)
    seen = scheduled(model, 1)
    ask(model, "b", ("b", 12), tokens=2)
    decode = {"a": 1}
    seen += scheduled(model, 7)
    assert seen == [
        *({"a": 4}, decode, decode, {"a": 1, "b": 7}, decode, decode, {"a": 1, "b": 5}),
        {"a": 1, "b": 1},
    ]


def test_no_prefill_is_held_back_while_requests_wait_or_none_decodes():
    for keys, names in (({"max_num_seqs": 2}, "abc"), ({}, "b")):
        model = target(prefill_schedule_interval=4, max_num_batched_tokens=4, **keys)
        for name in names:
            ask(model, name, (name, 1 if name == "a" else 12))
        assert all("b" in step for step in scheduled(model, 3))


def test_an_input_is_computed_in_one_step():
    for whole, tokens in ((False, [8, 2]), (True, [4, 6])):
        model = target(**ENCODER, disable_chunked_mm_input=whole)
        ask(model, "a", ("a", 4), ("picture", 6), encoder_inputs=[1])
        assert [step["a"] for step in scheduled(model, 2)] == tokens


def test_an_input_that_is_longer_than_the_threshold_is_split():
    model = target(**ENCODER, disable_chunked_mm_input=True, long_prefill_token_threshold=4)
    for name in "ab":
        ask(model, name, (f"picture {name}", 6), encoder_inputs=[0])
    assert scheduled(model, 2) == [{"a": 4}, {"a": 2}]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"max_num_seqs": 2, "max_num_active_seqs": 3},
            "$.config.max_num_active_seqs: 3 exceeds max_num_seqs (2); valid: 1 to 2, or null",
        ),
        (
            {"disable_chunked_mm_input": True},
            "$.config.disable_chunked_mm_input: true with inputs of up to 0 tokens",
        ),
        (
            {**ENCODER, "max_num_batched_tokens": 7, "max_num_seqs": 4}
            | {"disable_chunked_mm_input": True},
            "$.config.disable_chunked_mm_input: true with inputs of up to 8 tokens and a budget of",
        ),
    ],
)
def test_limits_that_no_server_can_have_are_refused(keys, words):
    with pytest.raises(InputError) as refused:
        read_config(keys, "documented")
    assert words in str(refused.value)
