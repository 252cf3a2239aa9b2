"""Groups of the KV cache, by example: gaps, what is kept too long, hits that are not whole."""

from msgspec.structs import replace

from schedproof.properties.vllm.history.groups import Groups
from schedproof.properties.vllm.history.run import VllmState, groups_after
from schedproof.properties.vllm.predicates import groups

from .build import book, ran, request

KEYS = {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 5}], "num_blocks": 12}


def before(*accounts, running="", holds=(), **more):
    """The history before a step in which the blocks of the window hold this."""
    history = book(*accounts, running=running, **KEYS | more)
    assert history.last is not None
    history.last = replace(history.last, blocks={}, group_blocks={})
    history.system_state = VllmState(groups=Groups(dict(holds)))
    return history


def after(scheduled, table, running="a", **more):
    blocks = tuple(range(1, len(table) + 1))
    return ran(scheduled, running, blocks={"a": blocks}, group_blocks={"a": (table,)}, **more)


def test_a_window_keeps_what_it_reads_and_nothing_before_it():
    # Token 9 reads tokens 5 to 9, from block 1 on; a block has 4 tokens.
    history = before(request("a", 12, 9), running="a")
    step = after({"a": 1}, (0, 8, 9))
    assert groups.kept_out_of_the_window(history, step) is None
    assert groups.lost_in_the_window(history, step) is None
    assert groups.something_slides_out(history, step)
    assert groups.kept_out_of_the_window(history, after({"a": 1}, (7, 8, 9))) == (
        "a computes token 9, and holds block 7 at place 0 of group 1, which reads from block 1 on"
    )
    assert groups.lost_in_the_window(history, after({"a": 1}, (0, 0, 9))) == (
        "a reads or writes block 1 of group 1, which it does not hold"
    )
    short = ran({"a": 1}, "a", blocks={"a": (1, 2, 3)}, group_blocks={"a": ((0, 8),)})
    assert groups.lost_in_the_window(history, short) == ("a has 2 blocks in group 1, but needs 3")


def test_a_request_that_ends_in_the_step_has_given_its_window_back():
    history = before(request("a", 12, 9), running="a", kv_connector=True)
    step = after({"a": 1}, (0, 0, 9), running="", finished={"a": "length"})
    assert groups.lost_in_the_window(history, step) is None


def test_the_places_that_a_load_leaves_empty_hold_nothing():
    history = before(request("a", 12, external=12, load_steps=1), kv_connector=True)
    step = after({}, (0, 0, 9), running="", parked=("a",))
    assert groups_after(history, step).holds == {9: (0, (("a", 12),))}


def test_blocks_that_a_request_gives_back_as_it_ends_can_be_found():
    a, b = request("a", 12, 0), request("b", 12, content=(("a", 12),))
    history = before(a, b, kv_connector=True)
    tables = {"a": ((0, 0, 7),), "b": ((0, 8, 9),)}
    hits = {"a": 0, "b": 8}
    step = ran({"a": 12, "b": 4}, "b", group_blocks=tables, prefix_hit=hits)
    assert groups.hit_not_whole(history, step) is not None
    ended = replace(step, finished={"a": "length"})
    assert groups.hit_not_whole(history, ended) is None


def test_a_hit_is_whole_only_if_the_window_holds_its_tokens():
    first = request("a", 12, 0)
    whole = before(first, holds={8: (0, (("a", 8),))})
    step = after({"a": 4}, (0, 8, 9), prefix_hit={"a": 8})
    assert groups.hit_not_whole(whole, step) is None
    assert groups.hit_out_of_the_window(whole, step)
    other = before(first, holds={8: (0, (("b", 8),))})
    assert groups.hit_not_whole(other, step) == (
        "a finds 8 tokens, but block 8 of group 1 does not hold the tokens of its block 1"
    )
    gap = after({"a": 4}, (0, 0, 9), prefix_hit={"a": 8})
    assert groups.hit_not_whole(whole, gap) == "a finds 8 tokens, but group 1 does not have block 1"


def test_admission_counts_every_group():
    history = before(request("a", 12, 0), num_blocks=5, max_num_batched_tokens=4)
    # 3 blocks of full attention, and of the window 4 + 4 tokens, which begin anywhere.
    assert groups.admitted_without_room(history, after({"a": 4}, (8,))) == (
        "a admitted: it needs 6 blocks in 2 groups, but 5 are free"
    )
    with_room = before(request("a", 12, 0), num_blocks=6, max_num_batched_tokens=4)
    assert groups.admitted_without_room(with_room, after({"a": 4}, (8,))) is None


def test_a_block_has_one_group_and_one_place():
    history = before(request("a", 12, 4), running="a")
    assert groups.held_twice(history, after({"a": 4}, (8, 9))) is None
    assert groups.held_twice(history, after({"a": 4}, (2, 9))) == (
        "block 2 is block 0 of a in group 1, and block 1 in group 0"
    )


LARGER = {"kind": "sliding_window", "window": 9, "block_size": 8}
SIZES = {"kv_groups": [{"kind": "full"}, LARGER]}


def test_a_hit_ends_at_the_end_of_a_block_of_every_group():
    history = before(request("a", 12, 0), **SIZES)
    step = after({"a": 4}, (9, 8), prefix_hit={"a": 8})
    assert groups.hit_inside_a_block(history, step) is None
    assert groups.hit_beside_other_sizes(history, step)
    assert groups.hit_inside_a_block(history, after({"a": 8}, (9, 8), prefix_hit={"a": 4})) == (
        "a finds 4 tokens, which end inside a block of group 1 (8 tokens)"
    )
    assert not groups.hit_beside_other_sizes(before(request("a", 12, 0)), step)


def test_a_table_has_the_blocks_of_its_own_size():
    history = before(request("a", 12, 4), running="a", **SIZES)
    blocks = {"blocks": {"a": (1, 2, 3)}}
    for table, says in (
        ((8, 9), None),
        ((8,), "a has 1 blocks in group 1, but needs 2"),
        ((8, 9, 7), "a has 3 blocks in group 1, but needs 2"),
    ):
        step = ran({"a": 8}, "a", **blocks, group_blocks={"a": (table,)})
        assert groups.lost_in_the_window(history, step) == says


MAMBA = {"kv_groups": [{"kind": "full"}, {"kind": "mamba"}], "max_num_batched_tokens": 8}


def test_a_request_holds_the_two_states_that_its_step_reads_and_writes():
    history = before(request("a", 30, 12), running="a", holds={9: (0, (("a", 12),))}, **MAMBA)
    step = after({"a": 8}, (0, 0, 9, 0, 8))
    for judge in (groups.lost_in_the_window, groups.too_many_states, groups.wrong_state):
        assert judge(history, step) is None
    assert groups.kept_out_of_the_window(history, step) is None
    assert groups.an_old_state_was_left(history, step)
    assert groups.too_many_states(history, after({"a": 8}, (0, 7, 9, 0, 8))) == (
        "a holds 3 states in group 1 (places 1, 2, 4), but at most 2 are in use"
    )
    assert groups.lost_in_the_window(history, after({"a": 8}, (0, 0, 0, 9, 8))) == (
        "a reads or writes block 2 of group 1, which it does not hold"
    )


def test_a_state_is_that_after_all_earlier_tokens():
    history = before(request("a", 30, 12), running="a", holds={9: (0, (("a", 11),))}, **MAMBA)
    assert groups.wrong_state(history, after({"a": 8}, (0, 0, 9, 0, 8))) == (
        "a continues after 12 tokens, but block 9 of group 1 holds the state after 11 tokens of a"
    )
    history = before(request("a", 30, 12), running="a", holds={9: (0, (("b", 12),))}, **MAMBA)
    assert groups.wrong_state(history, after({"a": 8}, (0, 0, 9, 0, 8))) == (
        "a continues after 12 tokens, but block 9 of group 1 holds the state after 12 other tokens"
    )
    assert groups.wrong_state(history, after({"a": 8}, (0, 0, 7, 0, 8))) == (
        "a continues after 12 tokens, but block 7 of group 1 holds no state"
    )


def test_where_a_hit_is_not_shown_a_state_may_be_left_after_any():
    history = before(request("a", 14), **MAMBA)
    history.aborts_inside = {"a"}
    step = ran({"a": 4}, group_blocks={}, prefix_hit={})
    left = {(0, (("a", tokens),)) for tokens in (4, 8, 12)}
    assert left <= groups_after(history, step).unseen
    shown = replace(step, prefix_hit={"a": 4}, group_blocks={"a": ((0, 7),)})
    assert groups_after(history, shown).unseen == frozenset()


def test_with_drafts_the_states_of_a_prefill_are_judged_and_no_others():
    drafts = {**MAMBA, "num_speculative_tokens": 2}
    history = before(request("a", 30, 12), running="a", holds={9: (0, (("a", 11),))}, **drafts)
    assert groups.wrong_state(history, after({"a": 8}, (0, 0, 9, 0, 8, 7, 6))) == (
        "a continues after 12 tokens, but block 9 of group 1 holds the state after 11 tokens of a"
    )
    decode = before(request("a", 12, 12), running="a", holds={9: (0, (("a", 11),))}, **drafts)
    assert groups.wrong_state(decode, after({"a": 3}, (0, 0, 9, 8, 7, 6))) is None


def test_a_chunk_ends_at_a_boundary_unless_it_is_the_last():
    history = before(request("a", 14, 4), running="a", **MAMBA)
    table = (0, 0, 9)
    assert groups.crosses_a_boundary(history, after({"a": 8}, table)) is None
    assert groups.a_prefill_goes_on(history, after({"a": 8}, table))
    assert groups.crosses_a_boundary(history, after({"a": 7}, table)) == (
        "a computes tokens 4 to 10, and stops inside a block"
    )
    assert groups.crosses_a_boundary(history, after({"a": 10}, table)) == (
        "a computes tokens 4 to 13, past the boundary at 12"
    )
    ended = before(request("a", 14, 12), running="a", **MAMBA)
    assert groups.crosses_a_boundary(ended, after({"a": 2}, table)) is None


def both(hit, table, *, computed=12, **more):
    """b, whose prompt begins like that of a, starts beside a, which holds `table` of its window."""
    holds = {8: (0, (("a", 8),)), 9: (0, (("a", 12),))}
    a, b = request("a", 12, computed), request("b", 14, content=(("a", 12), ("b", 2)))
    history = before(a, b, running="a", holds=holds, **more)
    step = ran({"a": 1, "b": 2}, "ab", group_blocks={"a": (table,)}, prefix_hit={"a": 0, "b": hit})
    return history, step


def test_a_request_finds_what_a_running_one_holds_in_every_group():
    for hit, table, says in (
        (12, (0, 8, 9), None),
        (8, (0, 8, 9), "b finds 8 tokens in the cache; a running request holds 12 of its tokens"),
        (0, (0, 8, 0), "b finds 0 tokens in the cache; a running request holds 8 of its tokens"),
    ):
        history, step = both(hit, table)
        assert groups.hit_of_groups_missed(history, step) == says
    history, step = both(12, (0, 8, 9))
    assert groups.groups_hold_something(history, step)


def test_with_eagle_a_request_finds_one_boundary_less_of_what_a_running_one_holds():
    eagle = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2}
    history, step = both(8, (0, 8, 9), **eagle)
    assert groups.hit_of_groups_missed(history, step) is None
    assert groups.groups_hold_something(history, step)
    history, step = both(0, (0, 8, 7), **eagle)
    assert not groups.groups_hold_something(history, step)  # block 7 may hold anything
    history, step = both(4, (0, 8, 9), **eagle)
    assert groups.hit_of_groups_missed(history, step) == (
        "b finds 4 tokens in the cache; a running request holds 8 of its tokens"
    )


def test_with_eagle_the_last_token_is_no_part_of_the_block_that_proves_a_hit():
    """A hit of 8 tokens needs the third block, and b must compute the last token of that one."""
    eagle = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2}
    holds = {8: (0, (("a", 8),)), 9: (0, (("a", 12),))}
    a, b = request("a", 12, 12), request("b", 12, content=(("a", 12),))
    history = before(a, b, running="a", holds=holds, **eagle)
    tables = {"group_blocks": {"a": ((0, 8, 9),)}, "prefix_hit": {"a": 0, "b": 4}}
    step = ran({"a": 1, "b": 8}, "ab", **tables)
    assert groups.hit_of_groups_missed(history, step) is None


def test_nothing_is_demanded_of_a_request_whose_tables_are_not_shown():
    history, _ = both(0, (0, 8, 9))
    step = ran({"a": 1, "b": 2}, "ab", group_blocks={}, prefix_hit={"a": 0, "b": 0})
    assert groups.hit_of_groups_missed(history, step) is None


def test_few_blocks_need_to_be_found_if_few_are_kept():
    history, step = both(0, (0, 8, 9), prefix_cache_retention_interval=0)
    assert groups.hit_of_groups_missed(history, step) is None
    assert not groups.groups_hold_something(history, step)


def test_a_table_of_states_has_a_place_for_each_draft():
    drafts = {**MAMBA, "num_speculative_tokens": 2}
    history = before(request("a", 30, 12), running="a", holds={9: (0, (("a", 12),))}, **drafts)
    blocks = {"blocks": {"a": (1, 2, 3, 4, 5)}}
    for table, says in (
        ((0, 0, 9, 0, 8, 7, 6), None),
        ((0, 0, 9, 0, 8), "a has 5 blocks in group 1, but needs 7"),
        (
            (0, 0, 9, 0, 8, 0, 6),
            "a reads or writes block 5 of group 1, which it does not hold",
        ),
    ):
        step = ran({"a": 8}, "a", **blocks, group_blocks={"a": (table,)})
        assert groups.lost_in_the_window(history, step) == says
    assert groups.too_many_states(history, step) is None
    most = ran({"a": 8}, "a", **blocks, group_blocks={"a": ((0, 5, 9, 0, 8, 7, 6),)})
    assert groups.too_many_states(history, most) == (
        "a holds 5 states in group 1 (places 1, 2, 4, 5, 6), but at most 4 are in use"
    )
