"""Sessions: what a turn computes, what a session holds while it waits, and where it waits."""

import pytest

from schedproof.model.target import ModelTarget

CONFIG = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 32},
    **{"num_blocks": 12, "streaming_inputs": True},
}


def started(revision="0.33", **changes):
    target = ModelTarget()
    assert target.start("vllm", revision, CONFIG | changes)["ok"]
    return target


def turn(name, delay=0, tokens=3, max_tokens=2):
    return {"prompt": [[name, tokens]], "max_tokens": max_tokens, "delay": delay}


def add(target, name, *turns, tokens=6, max_tokens=2):
    request = {"id": name, "prompt": [[name, tokens]], "max_tokens": max_tokens}
    assert target.add(request | {"turns": [*turns]})["ok"]


def step(target):
    return target.step()["step"]


def steps(target, number):
    return [step(target) for _ in range(number)]


def test_a_turn_computes_its_input_and_the_last_token_of_the_turn_before_is_dropped():
    target = started()
    add(target, "a", turn("b"))
    seen = steps(target, 4)
    assert [item["scheduled"] for item in seen] == [{"a": 6}, {"a": 1}, {"a": 3}, {"a": 1}]
    assert [item["computed"] for item in seen[:3]] == [{"a": 6}, {"a": 7}, {"a": 10}]
    assert [item["finished"] for item in seen] == [{}, {}, {}, {"a": "length"}]


def test_a_session_waits_as_long_as_its_input_and_keeps_its_blocks():
    target = started()
    add(target, "a", turn("b", 2))
    before = steps(target, 2)[-1]
    late = steps(target, 2)
    assert [item["scheduled"] for item in late] == [{}, {}]
    assert all(item["parked"] == ["a"] and item["blocks"] == before["blocks"] for item in late)
    assert step(target)["scheduled"] == {"a": 3}


def test_a_turn_that_stops_early_ends_for_its_own_reason_only_if_it_is_the_last():
    target = started()
    add(target, "a", turn("b") | {"max_tokens": 5, "output_len": 1}, max_tokens=1)
    assert [item["finished"] for item in steps(target, 2)] == [{}, {"a": "eos"}]


def test_another_request_finds_what_a_session_has_computed_but_not_its_dropped_token():
    target = started()
    add(target, "a", turn("b", tokens=5), tokens=7, max_tokens=1)
    steps(target, 2)
    target.add({"id": "old", "prompt": [["a", 7], ["out:a", 1], ["c", 1]], "max_tokens": 1})
    target.add({"id": "new", "prompt": [["a", 7], ["b", 5]], "max_tokens": 2})
    assert step(target)["computed"]["new"] == 12
    target = started()
    add(target, "a", turn("b", tokens=5), tokens=7, max_tokens=1)
    steps(target, 2)
    target.add({"id": "new", "prompt": [["a", 7], ["b", 5]], "max_tokens": 2})
    assert step(target)["prefix_hit"]["new"] == 8


def test_a_session_that_waits_for_input_keeps_its_slot():
    target = started(max_num_seqs=1)
    add(target, "a", turn("b", 2), max_tokens=1)
    step(target)
    add(target, "z")
    assert [item["scheduled"] for item in steps(target, 3)] == [{}, {}, {"a": 3}]


@pytest.mark.parametrize(("revision", "waiting"), [("0.33", ["a", "z"]), ("0.30", ["z", "a"])])
def test_since_0_31_a_session_whose_input_is_there_waits_in_front(revision, waiting):
    target = started(revision, max_num_seqs=1)
    add(target, "a", turn("b", None), max_tokens=1)
    add(target, "z")
    assert step(target)["waiting"] == waiting


@pytest.mark.parametrize("revision", ["0.33", "0.30"])
def test_a_session_that_waited_for_its_input_goes_first(revision):
    target = started(revision, max_num_seqs=1)
    add(target, "a", turn("b", 1), max_tokens=1)
    add(target, "z")
    assert [item["waiting"] for item in steps(target, 2)] == [["a", "z"]] * 2


def test_sessions_that_would_wait_for_each_others_blocks_give_them_back():
    target = started(num_blocks=4, max_model_len=16)
    for name in "ab":
        add(target, name, turn(f"{name}2", 1), tokens=8, max_tokens=1)
    seen = steps(target, 3)[-1]
    assert (seen["preempted"], seen["scheduled"]) == (["b"], {"a": 3})
    assert seen["waiting"] == ["b"]
    assert [item["finished"] for item in steps(target, 5) if item["finished"]] == [
        *({"a": "length"}, {"b": "length"}),
    ]


def test_a_request_that_preempts_itself_gets_the_blocks_of_sessions_behind_it():
    target = started("documented", num_blocks=2, block_size=8, max_model_len=16)
    add(target, "s", turn("s2", None), tokens=3, max_tokens=1)
    target.add({"id": "z", "prompt": [["z", 8]], "max_tokens": 2})
    seen = steps(target, 5)
    assert [item["preempted"] for item in seen] == [[], ["z", "s"], [], [], []]
    assert next(item["finished"] for item in seen if item["finished"]) == {"z": "length"}


def test_a_session_that_is_aborted_while_it_waits_is_gone():
    for inside in (False, True):
        target = started()
        add(target, "a", turn("b", 9), max_tokens=1)
        step(target)
        target.abort("a", inside)
        seen = step(target)
        assert (seen["finished"], seen["waiting"], seen["free_blocks"], seen["blocks"]) == (
            *({"a": "aborted"}, [], 12, {}),
        )


def test_a_session_whose_turns_are_too_long_together_is_refused():
    target = started()
    request = {"id": "a", "prompt": [["a", 20]], "max_tokens": 2, "turns": [turn("b", tokens=9)]}
    assert "33 tokens exceeds max_model_len" in target.add(request)["message"]


def test_a_token_computed_ahead_is_dropped_with_the_last_one_of_its_turn():
    target = started(async_scheduling=True)
    first = {"id": "a", "prompt": [["a", 6]], "max_tokens": 8, "output_len": 2}
    assert target.add(first | {"turns": [turn("b", None)]})["ok"]
    seen = steps(target, 5)
    assert [item["scheduled"] for item in seen[:4]] == [{"a": 6}, {"a": 1}, {"a": 1}, {"a": 3}]
    assert [item["emitted"].get("a", 0) for item in seen] == [0, 1, 1, 0, 1]
    assert [item["computed"]["a"] for item in seen[:4]] == [6, 7, 7, 10]


def test_a_session_whose_turn_ends_after_its_preemption_goes_to_the_end_of_the_queue():
    target = started(async_scheduling=True, num_blocks=4, max_model_len=16, max_num_seqs=2)
    target.add({"id": "b", "prompt": [["b", 7]], "max_tokens": 6})
    add(target, "a", turn("c", 2) | {"max_tokens": 1})
    target.add({"id": "z", "prompt": [["z", 4]], "max_tokens": 1})
    gone = steps(target, 3)[-1]
    assert (gone["preempted"], gone["emitted"], gone["waiting"]) == (
        *(["a"], {"b": 1, "a": 1}, ["z", "a"]),
    )
    assert "a" not in gone["computed"]


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_connector": True},
        {"num_speculative_tokens": 1},
        {"pipeline_parallel_size": 2},
        {"pipeline_parallel_size": 2, "async_scheduling": True},
        {"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8},
        {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 5}]},
        {"policy": "priority"},
    ],
)
def test_what_is_not_modelled_with_sessions_is_refused(changes):
    reply = ModelTarget().start("vllm", "0.33", CONFIG | changes)
    assert reply["error"] == "config"
    assert reply["message"].startswith("$.config.streaming_inputs: true with ")
