"""Groups of the KV cache: windows that slide, hits that are whole, one pool for all of them."""

import pytest

from schedproof.model.errors import InputError
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.config import read_config

FULL = {"kind": "full"}
SMALL = {
    **{"block_size": 2, "max_num_seqs": 2, "max_num_batched_tokens": 4, "max_model_len": 16},
    **{"num_blocks": 16, "enable_prefix_caching": True, "reserve_full_isl": False},
}


def window(tokens):
    return {"kind": "sliding_window", "window": tokens}


def target(*groups, **more):
    model = ModelTarget()
    groups = {"kv_groups": [FULL, *groups]} if groups else {}
    assert model.start("vllm", "documented", {**SMALL, **groups, **more})["ok"]
    return model


def add(model, name, *prompt, tokens=1):
    assert model.add({"id": name, "prompt": [list(s) for s in prompt], "max_tokens": tokens})["ok"]


def steps(model, number):
    return [model.step()["step"] for _ in range(number)]


def tables(seen, name):
    return [step["group_blocks"].get(name) for step in seen]


def test_a_block_that_slid_out_of_the_window_is_given_back_before_others_are_taken():
    model = target(window(3), enable_prefix_caching=False)
    add(model, "a", ("a", 12), tokens=2)
    seen = steps(model, 3)
    # Token 4 reads tokens 2 to 4: the block of tokens 0 and 1, block 3, goes to the other group.
    assert [step["blocks"]["a"] for step in seen] == [[1, 2], [1, 2, 3, 5], [1, 2, 3, 5, 6, 4]]
    assert tables(seen, "a") == [[[3, 4]], [[0, 4, 6, 7]], [[0, 0, 0, 7, 8, 9]]]
    assert [step["free_blocks"] for step in seen] == [12, 9, 7]


@pytest.mark.parametrize(("length", "hit"), [(3, 0), (5, 4)])
def test_a_hit_needs_of_a_window_only_what_the_next_token_reads(length, hit):
    model = target(window(3), num_blocks=8, max_model_len=9)
    add(model, "a", ("a", 8))
    steps(model, 2)
    # It takes the block of the window that was given back first, of tokens 0 and 1, and the last
    # block of the other group: a hit of one block is no longer whole, a hit of two blocks is.
    add(model, "x", ("x", 2))
    steps(model, 1)
    add(model, "b", ("a", length), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"].get("b", 0) == hit


def test_a_block_of_one_group_is_no_hit_of_another():
    model = target(window(16))
    add(model, "a", ("a", 5), tokens=9)
    steps(model, 2)
    add(model, "b", ("a", 5), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"]["b"] == 4
    assert seen["blocks"]["b"][:2] == seen["blocks"]["a"][:2]
    [own], [other] = seen["group_blocks"]["a"], seen["group_blocks"]["b"]
    assert own[:2] == other[:2]
    assert set(own).isdisjoint(seen["blocks"]["a"])


def test_two_groups_that_keep_all_tokens_decide_as_one_with_half_the_blocks():
    keys = {"enable_prefix_caching": False}
    plain = target(num_blocks=7, **keys)
    doubled = target(window(10**6), num_blocks=14, **keys)
    for model in (plain, doubled):
        for name, length in (("a", 7), ("b", 5), ("c", 3)):
            add(model, name, ("s", 4), (name, length), tokens=3)
    for item, two in zip(steps(plain, 30), steps(doubled, 30), strict=True):
        for field in ("scheduled", "emitted", "preempted", "finished", "running"):
            assert item[field] == two[field]
        assert two["free_blocks"] == 2 * item["free_blocks"]


def test_admission_reserves_for_a_window_no_more_than_it_ever_holds():
    keys = {"num_blocks": 11, "reserve_full_isl": True, "max_num_seqs": 1}
    # 14 tokens are 7 blocks; of the window, 3 - 1 + 4 tokens and a block that begins before them.
    model = target(window(3), **keys)
    add(model, "a", ("a", 14))
    [seen] = steps(model, 1)
    assert seen["scheduled"] == {"a": 4}
    refused = target(window(3), **keys, max_num_batched_tokens=6).add(
        {"id": "a", "prompt": [["a", 14]], "max_tokens": 1}
    )
    why = "prompt + max_tokens - 1 = 14 tokens needs 12 blocks, but the pool has 11"
    assert refused["message"] == why


BUFFER = {"kind": "circular_buffer", "block_size": 3}


def test_a_circular_buffer_is_one_block_from_admission_to_the_end():
    model = target(BUFFER, num_blocks=9)
    add(model, "a", ("a", 8), tokens=3)
    seen = steps(model, 4)
    assert tables(seen, "a") == [[[3]], [[3]], [[3]], None]
    assert [step["free_blocks"] for step in seen] == [6, 4, 3, 9]


def test_a_hit_needs_nothing_of_a_circular_buffer_but_ends_at_a_multiple_of_its_size():
    model = target(BUFFER)
    add(model, "a", ("a", 9), tokens=4)
    steps(model, 3)
    add(model, "b", ("a", 9), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"]["b"] == 6
    [own], [other] = seen["group_blocks"]["a"], seen["group_blocks"]["b"]
    assert own != other


@pytest.mark.parametrize(("interval", "hit"), [(None, 8), (0, 0), (4, 8), (6, 6)])
def test_a_window_is_retained_at_multiples_of_the_interval(interval, hit):
    model = target(window(3), num_blocks=30, prefix_cache_retention_interval=interval)
    add(model, "a", ("a", 12), tokens=2)
    steps(model, 5)
    add(model, "b", ("a", 9), ("b", 2), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"].get("b", 0) == hit


def test_one_full_group_is_no_group_at_all():
    assert read_config({"kv_groups": [FULL]}, "documented") == read_config({}, "documented")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kv_groups": []}, "$.config.kv_groups: is empty; valid: a list that begins with a full"),
        ({"kv_groups": [window(4)]}, "$.config.kv_groups: begins with sliding_window; valid"),
        (
            {"kv_groups": [FULL, {"kind": "sliding_window"}]},
            "$.config.kv_groups[1].window: sliding_window with no window; valid: at least 2 tokens",
        ),
        (
            {"kv_groups": [FULL, window(1)]},
            "$.config.kv_groups[1].window: sliding_window with window 1; valid: at least 2",
        ),
        (
            {"kv_groups": [FULL, window(4), {"kind": "full", "window": 4}]},
            "$.config.kv_groups[2].window: full with window 4; valid: absent",
        ),
        (
            {"kv_groups": [FULL, {"kind": "chunked_local", "window": 24}]},
            "$.config.kv_groups[1].window: chunked_local with window 24; valid: a multiple",
        ),
        (
            {"kv_groups": [FULL | {"block_size": 8}, window(4)]},
            "$.config.kv_groups[0].block_size: 8 is not the block_size of the configuration; valid",
        ),
        (
            {"kv_groups": [FULL, {"kind": "mamba"}, window(4) | {"block_size": 8}]},
            "$.config.kv_groups[2].block_size: 8 together with a mamba group is not modelled; "
            "valid: 16",
        ),
        (
            {"kv_groups": [FULL, {"kind": "chunked_local", "window": 8, "block_size": 8}]},
            "$.config.kv_groups[1].block_size: 8 is less than the hits of the other groups need; "
            "valid: 16",
        ),
        ({"kv_groups": [FULL, FULL]}, "$.config.kv_groups: 2 full groups: vLLM merges them into"),
        (
            {"kv_groups": [FULL, {"kind": "circular_buffer", "window": 4}]},
            "$.config.kv_groups[1].window: circular_buffer with window 4; valid: absent",
        ),
        (
            {"kv_groups": [FULL, {"kind": "circular_buffer"}], "kv_connector": True},
            "$.config.kv_groups: 2 groups with kv_connector together with a circular_buffer are "
            "not",
        ),
        (
            {"kv_groups": [FULL, window(4)], "prefix_cache_retention_interval": 24},
            "$.config.prefix_cache_retention_interval: 24; valid: 0, null or, with a sliding_window"
            " or mamba group, a multiple of 16",
        ),
        (
            {
                "kv_groups": [FULL, {"kind": "mamba"}],
                "enable_prefix_caching": False,
                "prefix_cache_retention_interval": 16,
            },
            "$.config.prefix_cache_retention_interval: 16; valid: 0, null or, with a",
        ),
        (
            {"prefix_cache_retention_interval": 16},
            "$.config.prefix_cache_retention_interval: 16; valid: 0, null or, with a",
        ),
        (
            {"kv_groups": [FULL, {"kind": "linear"}]},
            "$.config.kv_groups[1].kind: ",
        ),
        (
            {"kv_groups": [FULL, window(4)], "pipeline_parallel_size": 2},
            "$.config.kv_groups: 2 groups with pipeline_parallel_size are not modelled; valid: one",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused(keys, words):
    with pytest.raises(InputError) as refused:
        read_config(keys, "documented")
    assert str(refused.value).startswith(words)


def test_chunks_are_given_back_as_a_whole():
    model = target({"kind": "chunked_local", "window": 4}, enable_prefix_caching=False)
    add(model, "a", ("a", 10), tokens=3)
    seen = steps(model, 3)
    # Token 4 begins a chunk of 4 tokens, and so does token 8: what is before is never read again.
    assert [[bool(block) for block in table] for [table] in tables(seen, "a")] == [
        [True, True],
        [False, False, True, True],
        [False, False, False, False, True],
    ]


def test_a_hit_ends_at_the_border_of_a_chunk_of_which_nothing_is_read():
    model = target({"kind": "chunked_local", "window": 4}, num_blocks=12, max_model_len=12)
    add(model, "a", ("a", 8))
    steps(model, 2)
    add(model, "b", ("a", 9), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"] == {"b": 8}
    assert seen["group_blocks"]["b"][0][:4] == [0, 0, 0, 0]


def test_a_decision_in_flight_keeps_the_blocks_that_it_reads():
    keys = {"enable_prefix_caching": False, "async_scheduling": True, "num_blocks": 24}
    model = target(window(3), **keys)
    add(model, "a", ("a", 12), tokens=2)
    seen = steps(model, 3)
    # Two decisions are in flight when the third is made: the first is yet to read tokens 0 to 3.
    assert [[bool(block) for block in table] for [table] in tables(seen, "a")] == [
        [True] * 2,
        [True] * 4,
        [False, *[True] * 5],
    ]


@pytest.mark.parametrize(("size", "blocks"), [(1, 5), (3, 2), (4, 2), (8, 1)])
def test_a_group_takes_blocks_of_its_own_size(size, blocks):
    model = target(window(16) | {"block_size": size}, max_num_batched_tokens=8)
    add(model, "a", ("a", 5), tokens=2)
    [seen] = steps(model, 1)
    assert len(seen["blocks"]["a"]) == 3
    assert [len(table) for table in seen["group_blocks"]["a"]] == [blocks]


@pytest.mark.parametrize(("size", "hit"), [(2, 10), (4, 8), (6, 6), (3, 6), (8, 8)])
def test_a_hit_ends_at_the_end_of_a_block_of_every_group(size, hit):
    model = target(window(16) | {"block_size": size}, max_num_batched_tokens=16)
    add(model, "a", ("a", 12))
    steps(model, 1)
    add(model, "b", ("a", 11), tokens=2)
    [seen] = steps(model, 1)
    assert seen["prefix_hit"]["b"] == hit


def test_a_window_keeps_only_blocks_at_the_ends_of_hits():
    model = target(window(3) | {"block_size": 2}, {"kind": "full", "block_size": 8})
    add(model, "a", ("a", 15))
    steps(model, 4)
    # Hits end after 8 tokens, and the next token then reads tokens 6 and 7.
    found = [name for name in model._state.pool.cached if name[0][0] == "group 0"]
    assert found == [(("group 0", 0), ("a", 8))]
