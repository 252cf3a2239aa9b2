"""Loads into several groups: each loads what it reads, and a load fails as a whole."""

import pytest

from schedproof.model.target import ModelTarget

FULL = {"kind": "full"}
WINDOW = {"kind": "sliding_window", "window": 5}
SMALL = {
    **{"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32},
    **{"num_blocks": 16, "kv_connector": True, "kv_groups": [FULL, WINDOW]},
}


def target(*, revision="documented", **more):
    model = ModelTarget()
    assert model.start("vllm", revision, {**SMALL, **more})["ok"]
    return model


def add(model, name, content, tokens, external=0, **more):
    fields = {"id": name, "prompt": [[content, tokens]], "max_tokens": 2}
    assert model.add({**fields, "external_tokens": external, **more})["ok"]


def steps(model, number):
    return [model.step()["step"] for _ in range(number)]


@pytest.mark.parametrize(
    ("prompt", "table"), [(14, [[0, 0, 4]]), (12, [[0, 4, 5]]), (8, [[3, 4]]), (9, [[0, 3]])]
)
def test_a_load_fills_the_blocks_of_a_window_that_the_next_step_reads(prompt, table):
    """Of a prompt that is loaded as a whole, the last token is computed again: after a load of 8
    tokens, the step reads tokens 3 to 7."""
    model = target()
    add(model, "a", "a", prompt, prompt // 4 * 4, load_steps=2)
    [parked] = steps(model, 1)
    assert parked["parked"] == ["a"]
    assert parked["group_blocks"]["a"] == table


def test_a_load_ends_at_the_end_of_a_block_in_every_group():
    model = target(kv_groups=[FULL, {**WINDOW, "block_size": 8}])
    add(model, "a", "a", 14, 12)
    assert steps(model, 2)[1]["scheduled"] == {"a": 6}


def test_loaded_blocks_of_all_groups_are_found_by_others():
    model = target()
    add(model, "a", "a", 14, 12)
    steps(model, 2)
    add(model, "b", "a", 14)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"]["b"] == 12


@pytest.mark.parametrize("revision", ["documented", "0.33"])
def test_a_load_that_fails_leaves_nothing_but_what_is_cached(revision):
    """b finds the first block of each group, and loads two more. It computes what failed to load,
    and c still finds the first block of each group."""
    model = target(revision=revision)
    add(model, "a", "a", 5)
    steps(model, 2)
    add(model, "b", "a", 14, 12, load_fails_at=10)
    seen = steps(model, 2)
    assert len(seen[0]["blocks"]["b"]) == 3
    assert seen[1]["scheduled"] == {"b": 10}
    assert seen[1]["prefix_hit"]["b"] == 4


def test_a_load_leaves_what_a_prefill_needs_in_all_groups():
    """a needs three blocks in each group, and has one. b loads two blocks, one of the window."""
    keys = {"max_num_batched_tokens": 8, "long_prefill_token_threshold": 4}
    for blocks, parked in ((8, []), (9, ["b"])):
        model = target(num_blocks=blocks, max_model_len=13, **keys)
        add(model, "a", "a", 11)
        add(model, "b", "b", 9, 8, load_steps=3)
        assert steps(model, 1)[0]["parked"] == parked


def test_blocks_out_of_the_window_are_not_sent():
    model = target()
    add(model, "a", "a", 11, send_steps=1)
    seen = steps(model, 4)
    assert [len(step["blocks"].get("a", ())) for step in seen] == [3, 3, 3, 0]
    assert seen[1]["finished"] == {"a": "length"}
    assert seen[2]["group_blocks"]["a"][0][:2] == [0, 0]
