"""Groups of Mamba layers: states instead of tokens, and chunks that end where a state is found."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

GROUPS = {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}]}
SMALL = {
    **{"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 10, "max_model_len": 32},
    **{"num_blocks": 24, "enable_prefix_caching": True, "reserve_full_isl": False, **GROUPS},
}


def target(revision="0.33", **more):
    model = ModelTarget()
    assert model.start("vllm", revision, {**SMALL, **more})["ok"]
    return model


def add(model, name, *prompt, tokens=1):
    assert model.add({"id": name, "prompt": [list(s) for s in prompt], "max_tokens": tokens})["ok"]


def steps(model, number):
    return [model.step()["step"] for _ in range(number)]


def computed(seen, name):
    return [step["scheduled"].get(name, 0) for step in seen]


def test_chunks_end_at_block_boundaries_and_two_states_are_held():
    model = target()
    add(model, "a", ("a", 14), tokens=4)
    seen = steps(model, 5)
    assert computed(seen, "a") == [8, 4, 2, 1, 1]
    held = [[bool(block) for block in step["group_blocks"]["a"][0]] for step in seen[:4]]
    assert held == [
        [False, True],
        [False, True, True],
        [False, False, True, True],
        [False, False, False, True],
    ]


@pytest.mark.parametrize(("revision", "chunks"), [("0.25", [8, 4]), ("0.33", [8, 4])])
def test_a_prompt_of_whole_blocks_is_computed_in_chunks_of_whole_blocks(revision, chunks):
    model = target(revision)
    add(model, "a", ("a", 12))
    assert computed(steps(model, 2), "a") == chunks


@pytest.mark.parametrize(("revision", "chunks"), [("0.25", [8, 0]), ("0.33", [4, 4])])
def test_only_a_later_release_stops_where_the_same_prompt_can_begin_again(revision, chunks):
    model = target(revision)
    add(model, "a", ("a", 8))
    assert computed(steps(model, 2), "a") == chunks


def test_a_hit_ends_at_a_state_that_was_left_there():
    model = target()
    add(model, "a", ("a", 14))
    steps(model, 3)
    add(model, "b", ("a", 7), ("b", 3))
    [seen] = steps(model, 1)
    # The states after 8 and 12 tokens are cached, but none after 4.
    assert seen["prefix_hit"].get("b", 0) == 0
    add(model, "c", ("a", 9), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"]["c"] == 8


def test_a_chunk_ends_where_full_attention_has_cached_what_no_state_is_kept_of():
    model = target()
    add(model, "a", ("a", 14))
    steps(model, 3)
    add(model, "b", ("a", 5), ("b", 7))
    assert computed(steps(model, 3), "b") == [4, 4, 4]


def test_a_request_waits_while_its_state_is_computed():
    model = target(max_num_batched_tokens=16)
    add(model, "a", ("a", 9))
    add(model, "b", ("a", 9))
    seen = steps(model, 2)
    assert [step["waiting"] for step in seen] == [["b"], []]
    assert seen[1]["scheduled"] == {"a": 1, "b": 1}


def test_only_states_that_the_same_prompt_reads_are_found_if_little_is_retained():
    model = target(prefix_cache_retention_interval=0)
    add(model, "a", ("a", 14))
    steps(model, 3)
    add(model, "b", ("a", 9))
    [seen] = steps(model, 1)
    assert seen["prefix_hit"].get("b", 0) == 0
    add(model, "c", ("a", 14), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"]["c"] == 12


def test_without_a_prefix_cache_each_step_overwrites_a_single_state():
    model = target(enable_prefix_caching=False, num_blocks=5, max_model_len=16)
    add(model, "a", ("a", 14), tokens=2)
    seen = steps(model, 2)
    assert computed(seen, "a") == [10, 4]
    assert [step["group_blocks"]["a"] for step in seen] == [[[4]], [[4]]]
    assert [step["free_blocks"] for step in seen] == [1, 0]


def test_a_block_too_large_for_a_chunk_is_computed_in_parts():
    model = target(max_num_batched_tokens=3)
    add(model, "a", ("a", 9))
    assert computed(steps(model, 5), "a") == [3, 1, 3, 1, 1]


def test_with_a_state_at_every_boundary_a_hit_ends_at_any_of_them():
    model = target(mamba_cache_mode="all")
    add(model, "a", ("a", 14))
    first = steps(model, 1)[0]
    assert first["scheduled"] == {"a": 10}
    assert all(first["group_blocks"]["a"][0])
    steps(model, 1)
    add(model, "b", ("a", 7), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"] == {"b": 4}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"kv_groups": [{"kind": "full"}, {"kind": "mamba", "window": 4}]},
            "$.config.kv_groups[1].window: mamba with window 4; valid: absent",
        ),
        (
            {"mamba_cache_mode": "all"},
            "$.config.mamba_cache_mode: all without a mamba group; valid: none, or a mamba group",
        ),
        (
            {**GROUPS, "mamba_cache_mode": "all", "enable_prefix_caching": False},
            "$.config.mamba_cache_mode: all without prefix caching; valid: none, or prefix caching",
        ),
        (
            {**GROUPS, "num_speculative_tokens": 4, "block_size": 4},
            "$.config.num_speculative_tokens: 4 drafts with a mamba group and prefix caching are "
            "not modelled for blocks of 4; valid: at most 3",
        ),
        (
            {**GROUPS, "num_speculative_tokens": 1, "mamba_cache_mode": "all"},
            "$.config.num_speculative_tokens: 1 drafts with a mamba group and mamba_cache_mode all",
        ),
        (
            {**GROUPS, "enable_chunked_prefill": False},
            "$.config.enable_chunked_prefill: false with a mamba group and prefix caching: vLLM",
        ),
    ],
)
def test_mamba_groups_that_cannot_be_are_refused(keys, words):
    with pytest.raises(InputError) as refused:
        read_config(keys, "documented")
    assert str(refused.value).startswith(words)


def test_a_decision_in_flight_keeps_the_state_that_it_reads():
    model = target(async_scheduling=True, max_num_batched_tokens=4)
    add(model, "a", ("a", 30))
    seen = steps(model, 5)
    held = [sum(map(bool, step["group_blocks"]["a"][0])) for step in seen]
    assert held == [1, 2, 3, 3, 3]
