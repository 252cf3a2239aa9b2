"""Parts of prompts that an encoder computes: within budget and room, kept, dropped, shared."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.scenario import Request, check_requests
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

ENCODER = {"max_num_encoder_input_tokens": 4, "encoder_cache_size": 8}
SMALL = {
    **{"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32},
    **{"num_blocks": 8, "enable_prefix_caching": False, "reserve_full_isl": False},
}


def target(revision="documented", **more):
    model = ModelTarget()
    assert model.start("vllm", revision, {**SMALL, **ENCODER, **more})["ok"]
    return model


def request(name, *prompt, tokens=1, **more):
    """A request; segments whose names are in upper case come from the encoder."""
    inputs = [number for number, (stream, _) in enumerate(prompt) if stream.isupper()]
    segments = [list(segment) for segment in prompt]
    values = {"id": name, "prompt": segments, "max_tokens": tokens, **more}
    return values | ({"encoder_inputs": inputs} if inputs else {})


def run(steps, *requests, **more):
    """The first steps of requests that arrive together."""
    model = target(**more)
    for coming in requests:
        assert model.add(coming)["ok"]
    return [model.step()["step"] for _ in range(steps)]


def column(steps, field):
    return [step[field] for step in steps]


def test_a_request_stops_at_an_input_that_the_budget_has_no_room_for():
    seen = run(3, request("a", ("a", 2), ("X", 3), ("b", 1), ("Y", 2)))
    assert column(seen, "scheduled") == [{"a": 6}, {"a": 2}, {}]
    assert column(seen, "encoder_inputs") == [{"a": [1]}, {"a": [3]}, {}]


def test_an_output_is_kept_for_others_and_computed_once():
    seen = run(1, request("a", ("X", 4)), request("b", ("X", 4)))
    assert column(seen, "scheduled") == [{"a": 4, "b": 4}]
    assert column(seen, "encoder_inputs") == [{"a": [0]}]
    twice = run(1, request("a", ("X", 2), ("a", 1), ("X", 2)))
    assert column(twice, "encoder_inputs") == [{"a": [0]}]


def test_the_output_that_was_not_needed_for_longest_is_dropped_first():
    prompt = (("X", 4), ("Y", 4), ("Z", 4), ("X", 4))
    seen = run(4, request("a", *prompt), encoder_cache_size=8)
    assert column(seen, "encoder_inputs") == [{"a": [0]}, {"a": [1]}, {"a": [2]}, {"a": [3]}]
    assert column(seen, "encoder_dropped") == [[], [], ["X"], ["Y"]]


def test_what_a_request_needs_still_is_not_dropped_and_others_wait_or_pass():
    slow = request("a", ("X", 4), tokens=1)
    waits, passes = request("b", ("Y", 4)), request("c", ("c", 2))
    keys = {"encoder_cache_size": 4, "max_num_encoder_input_tokens": 8, "max_num_seqs": 3}
    seen = run(3, slow, waits, passes, **keys, max_num_batched_tokens=3)
    assert column(seen, "scheduled")[:2] == [{"a": 3}, {"a": 1, "c": 2}]
    assert column(seen, "encoder_dropped")[2] == ["X"]
    assert seen[2]["scheduled"] == {"b": 3}


def test_without_room_for_its_first_token_a_running_request_is_passed_over():
    first, second = request("a", ("X", 4), ("Y", 4)), request("b", ("b", 2), tokens=3)
    seen = run(2, first, second)
    assert column(seen, "scheduled") == [{"a": 4, "b": 2}, {"a": 4, "b": 1}]


def test_a_preempted_request_gives_back_what_was_not_computed_yet():
    """As in gate/corpus/builtin/vllm/preempted-before-its-input-is-encoded.json, in small."""
    model = target(
        **{"num_blocks": 5, "max_num_batched_tokens": 8, "policy": "priority"},
        encoder_cache_size=16,
    )
    album = request("a", ("P", 4), ("Q", 4), ("R", 4), ("S", 4), priority=1)
    assert model.add(album)["ok"]
    steps = [model.step()["step"]]
    assert model.add(request("b", ("b", 3), tokens=6))["ok"]
    steps += [model.step()["step"] for _ in range(7)]
    assert steps[3]["preempted"] == ["a"]
    assert column(steps, "encoder_inputs") == [
        *({"a": [0]}, {"a": [1]}, {"a": [2]}, {}),
        *({}, {}, {}, {"a": [3]}),
    ]


def test_another_request_that_counts_on_a_victims_input_has_it_computed():
    model = target(
        **{"num_blocks": 5, "max_num_batched_tokens": 16, "policy": "priority", "max_num_seqs": 3},
        encoder_cache_size=16,
    )
    assert model.add(request("a", ("P", 4), ("Q", 4), ("S", 4), priority=2))["ok"]
    model.step()
    assert model.add(request("b", ("b", 3), tokens=6))["ok"]
    assert model.add(request("c", ("Q", 4), priority=1))["ok"]
    seen = model.step()["step"]
    assert seen["encoder_inputs"] == {"a": [1]}
    assert "c" in seen["scheduled"]


def test_steps_in_flight_keep_what_they_read():
    keys = {"async_scheduling": True, "max_num_batched_tokens": 4, "encoder_cache_size": 4}
    seen = run(6, request("a", ("X", 4), ("Y", 4)), **keys)
    assert column(seen, "scheduled") == [{"a": 4}, {}, {"a": 4}, {}, {}, {}]
    assert column(seen, "encoder_dropped")[2] == ["X"]


EAGLE = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "encoder_cache_size": 4}


def test_an_input_is_computed_with_the_token_before_it_if_a_drafter_reads_ahead():
    seen = run(2, request("a", ("a", 4), ("X", 4)), **EAGLE, max_num_batched_tokens=4)
    assert column(seen, "encoder_inputs") == [{"a": [1]}, {}]


def test_a_request_goes_on_before_an_input_that_only_its_drafter_reads():
    keys = {**EAGLE, "max_num_batched_tokens": 4}
    for revision, first in (("0.33", 4), ("0.30", 3)):
        model = target(revision, **keys)
        assert model.add(request("a", ("X", 4), ("Y", 4)))["ok"]
        seen = [model.step()["step"] for _ in range(4)]
        assert seen[0]["scheduled"] == {"a": first}
        assert [name for step in seen for name in step["encoder_dropped"]] == ["X"]


def test_an_abort_and_an_end_let_go_of_the_outputs():
    model = target(encoder_cache_size=4, max_num_batched_tokens=4)
    assert model.add(request("a", ("X", 4), ("a", 8)))["ok"]
    assert model.add(request("b", ("Y", 4)))["ok"]
    assert model.step()["step"]["encoder_inputs"] == {"a": [0]}
    model.abort("a")
    seen = model.step()["step"]
    assert (seen["encoder_inputs"], seen["encoder_dropped"]) == ({"b": [0]}, ["X"])


def test_an_input_that_no_step_can_compute_is_refused_at_the_door():
    refused = target().add(request("a", ("X", 5)))
    assert refused["error"] == "rejected"
    assert refused["message"] == (
        "an encoder input of 5 tokens exceeds max_num_encoder_input_tokens (4) or "
        "encoder_cache_size (8)"
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"encoder_cache_size": 4}, "$.config.max_num_encoder_input_tokens: 0 with encoder_cache"),
        ({"max_num_encoder_input_tokens": 4}, "$.config.encoder_cache_size: 0 with max_num_enc"),
    ],
)
def test_half_an_encoder_is_refused(keys, words):
    with pytest.raises(InputError) as error:
        read_config(keys, "documented")
    assert str(error.value).startswith(words)


@pytest.mark.parametrize(
    ("prompts", "inputs", "words"),
    [
        ([[("x", 4)]], [(1,)], "$.requests[0].encoder_inputs[0]: 1 is not a segment"),
        ([[("x", 4), ("y", 2)]], [(0, 0)], "$.requests[0].encoder_inputs[1]: 0 is not a segment"),
        ([[("x", 4)], [("x", 3)]], [(0,), (0,)], "$.requests[1].prompt[0]: 'x' is an encoder"),
        ([[("x", 4)], [("x", 4)]], [(), (0,)], "$.requests[0].prompt[0]: 'x' is an encoder"),
    ],
)
def test_inputs_that_contradict_the_prompts_are_no_scenario(prompts, inputs, words):
    requests = tuple(
        Request(id=f"r{n}", arrival=0, prompt=tuple(prompt), max_tokens=1, encoder_inputs=its)
        for n, (prompt, its) in enumerate(zip(prompts, inputs, strict=True))
    )
    with pytest.raises(InputError) as error:
        check_requests(requests)
    assert str(error.value).startswith(words)
