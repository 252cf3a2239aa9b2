"""A request finds a prefix that every group of the KV cache still has (V1-R93), by example."""

import pytest
from msgspec.structs import replace

from schedproof.properties.vllm.history import kept_in_groups
from schedproof.properties.vllm.history.run import VllmState
from schedproof.properties.vllm.predicates.kept_in_groups import (
    a_state_is_missing,
    every_block_is_kept,
    hit_on_kept_missed,
    runs_past_junction,
    something_is_kept,
    states_are_aligned,
)

from .build import book, ran, request

KEYS = {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 5}], "num_blocks": 12}
# The blocks of a, which has ended: three of full attention, and those of the window.
KEPT = {
    1: (0, (("a", 4),)),
    2: (0, (("a", 8),)),
    3: (0, (("a", 12),)),
    8: (1, (("a", 8),)),
    9: (1, (("a", 12),)),
}


def before(*accounts, running="", kept=KEPT, **more):
    history = book(*accounts, running=running, **KEYS | more)
    assert history.last is not None
    history.last = replace(history.last, blocks={}, group_blocks={})
    history.system_state = VllmState(kept=kept)
    return history


def starts(hit, **others):
    """b starts with a hit, and the other requests get these blocks of the window."""
    tables = {name: ((block,),) for name, block in others.items()}
    return ran(
        {"b": 14 - hit, **dict.fromkeys(others, 1)},
        ["b", *others],
        blocks={"b": (1, 2, 3, 4), **dict.fromkeys(others, (5,))},
        group_blocks={"b": ((0, 8, 9, 10),), **tables},
        prefix_hit={"b": hit, **dict.fromkeys(others, 0)},
    )


def b():
    return request("b", 14, content=(("a", 12), ("b", 2)))


@pytest.mark.parametrize(("hit", "fewer"), [(12, False), (8, True), (0, True)])
def test_a_request_finds_what_nobody_holds_any_more(hit, fewer):
    history = before(b())
    assert something_is_kept(history, starts(hit))
    assert hit_on_kept_missed(history, starts(hit)) == (
        f"b finds {hit} tokens in the cache, but 12 were computed before, and every group still "
        "has their blocks"
        if fewer
        else None
    )


def test_a_block_that_another_request_gets_in_the_same_step_is_gone():
    history = before(b(), request("c", 1))
    assert hit_on_kept_missed(history, starts(8, c=9)) is None
    assert hit_on_kept_missed(history, starts(0, c=9)) is not None
    # A hit of 12 tokens does not read block 8.
    assert hit_on_kept_missed(history, starts(8, c=8)) is not None


def test_a_group_that_lacks_a_block_makes_the_hit_shorter():
    without = {block: content for block, content in KEPT.items() if block != 3}
    history = before(b(), kept=without)
    assert hit_on_kept_missed(history, starts(8)) is None
    assert hit_on_kept_missed(history, starts(4)) is not None


def test_with_eagle_the_pool_must_have_the_next_boundary_too():
    eagle = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2}
    history = before(b(), **eagle)
    assert hit_on_kept_missed(history, starts(8)) is None
    assert hit_on_kept_missed(history, starts(4)) is not None


def test_tokens_of_another_partition_are_not_kept_for_a_request():
    salted = request("b", 14, content=(("a", 12), ("b", 2)))
    salted.partition = ("salt", None)
    assert not something_is_kept(before(salted), starts(0))


def test_blocks_that_a_step_fills_are_kept_after_their_request_has_left():
    a = request("a", 12)
    history = before(a, kept={})
    step = ran(
        {"a": 12},
        "a",
        blocks={"a": (1, 2, 3)},
        group_blocks={"a": ((0, 8, 9),)},
        prefix_hit={"a": 0},
    )
    assert kept_in_groups.after(history, step, {}) == KEPT
    running = request("a", 12, 12)
    history = before(running, running="a")
    history.last = replace(history.last, blocks=step.blocks, group_blocks=step.group_blocks)
    leaves = ran({"a": 1}, "", blocks={}, group_blocks={}, finished={"a": "length"})
    # Block 8 slid out of the window, so a may have received it again for its next token.
    still = {block: content for block, content in KEPT.items() if block != 8}
    assert kept_in_groups.after(history, leaves, KEPT) == still


def test_what_a_request_may_have_received_unseen_is_not_certain():
    """c ends after its first token, so the step does not show which blocks it got."""
    history = before(request("c", 4))
    unseen = ran({"c": 4}, "", blocks={}, group_blocks={}, finished={"c": "length"})
    assert kept_in_groups.after(history, unseen, KEPT) == {}


@pytest.mark.parametrize(
    "more",
    [
        {"kv_connector": True},
        {"kv_groups": [{"kind": "full"}]},
        {"enable_prefix_caching": False},
    ],
)
def test_without_certainty_nothing_is_followed(more):
    config = before(b(), **more).config
    assert not kept_in_groups.are_followed(config)


def test_a_window_need_not_be_found_if_few_blocks_are_retained():
    assert every_block_is_kept(before(b()).config)
    assert not every_block_is_kept(before(b(), prefix_cache_retention_interval=0).config)


MAMBA = {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}], "num_blocks": 12}
# Full attention has the blocks of a, whose only state is after 12 tokens.
OF_A = {1: KEPT[1], 2: KEPT[2], 3: KEPT[3], 8: (1, (("a", 12),))}


def chunk(tokens):
    """b, which shares 10 tokens with a, starts with a chunk of this many tokens."""
    table = (1, 2, *range(5, 5 + max(-(-tokens // 4) - 2, 0)))
    return ran({"b": tokens}, "b", blocks={"b": table}, group_blocks={"b": ((9,),)}, prefix_hit={})


def beside_a(**more):
    a = request("a", 12, 12, content=(("a", 12),))
    return before(a, request("b", 20, content=(("a", 10), ("b", 10))), **MAMBA | more)


@pytest.mark.parametrize(("tokens", "broken"), [(8, False), (4, False), (20, True)])
def test_the_first_chunk_ends_where_a_shared_prefix_ends(tokens, broken):
    history = beside_a(kept=OF_A)
    assert a_state_is_missing(history, chunk(tokens))
    assert runs_past_junction(history, chunk(tokens)) == (
        "b computes tokens 0 to 19 in one chunk, but leaves no state after token 7, up to which "
        "full attention has cached its tokens"
        if broken
        else None
    )


def test_a_chunk_may_end_anywhere_if_it_is_unknown_what_is_cached():
    assert not a_state_is_missing(beside_a(kept={}), chunk(20))
    lacks_the_second = {block: OF_A[block] for block in (1, 3, 8)}
    assert runs_past_junction(beside_a(kept=lacks_the_second), chunk(20)) is None


@pytest.mark.parametrize(
    "options",
    [{"mamba_cache_mode": "all"}, {"num_speculative_tokens": 1, "num_lookahead_tokens": 1}],
)
def test_chunks_without_a_junction_are_not_judged(options):
    config = beside_a().config
    assert states_are_aligned(config)
    assert not states_are_aligned({**config, **options})
