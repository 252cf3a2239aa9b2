"""Blocks given, shared, found and given back. Blocks of four tokens."""

import pytest

from schedproof.model.nano_vllm import block_manager
from schedproof.model.pool import Pool, free_blocks

from .build import config, decoding, pool, waiting

LIMITS = config()
FIRST, SECOND = (("s", 4),), (("s", 8),)


def cached(*contents, **changes):
    """A pool of nine, five of them in use, in which these contents are found."""
    table = {content: (block,) for content, block in contents}
    return Pool(9, (), 6, (), table)._replace(**changes)


@pytest.mark.parametrize(
    ("content", "hit"),
    [
        ((("s", 4),), ()),
        ((("s", 5),), (1,)),
        ((("s", 8),), (1,)),
        ((("s", 9),), (1, 2)),
        ((("s", 30),), (1, 2)),
        ((("s", 7), ("t", 5)), (1,)),
        ((("t", 9),), ()),
        ((("t", 1), ("s", 9)), ()),
    ],
)
def test_a_hit_is_the_cached_blocks_that_begin_a_sequence_but_not_its_last(content, hit):
    sequence = waiting(sum(tokens for _, tokens in content), content=content)
    assert block_manager.prefix_hit(LIMITS, cached((FIRST, 1), (SECOND, 2)), sequence) == hit


def test_a_hit_ends_at_the_first_block_that_is_missing():
    third = (("s", 12),)
    sequence = waiting(13, content=(("s", 13),))
    assert block_manager.prefix_hit(LIMITS, cached((FIRST, 1), (third, 3)), sequence) == (1,)
    assert block_manager.prefix_hit(LIMITS, cached((SECOND, 2), (third, 3)), sequence) == ()


def test_what_was_generated_is_found_too():
    content = (("s", 6), ("out:a", 2))
    store = cached((FIRST, 1), (content, 2))
    again = waiting(6, name="a", content=(("s", 6),), generated=3)
    assert block_manager.prefix_hit(LIMITS, store, again) == (1, 2)
    newcomer = waiting(9, name="b", content=(*content, ("b", 1)))
    assert block_manager.prefix_hit(LIMITS, store, newcomer) == (1, 2)
    assert block_manager.prefix_hit(LIMITS, store, again._replace(id="c")) == (1,)


def test_a_table_has_blocks_for_all_tokens_taken_from_the_front():
    sequence, rest = block_manager.allocate(LIMITS, pool(9, 2), waiting(9), ())
    assert (sequence.blocks, sequence.computed, sequence.prefix_hit, sequence.published) == (
        (3, 4, 5),
        0,
        0,
        0,
    )
    assert rest == pool(9, 5)


def test_generated_tokens_need_blocks_as_well():
    sequence, _ = block_manager.allocate(LIMITS, pool(9, 2), waiting(8, generated=1), ())
    assert sequence.blocks == (3, 4, 5)


def test_blocks_that_were_found_begin_the_table_and_count_as_computed():
    sequence, rest = block_manager.allocate(LIMITS, cached((FIRST, 1)), waiting(9), (1,))
    assert (sequence.blocks, sequence.computed, sequence.prefix_hit, sequence.published) == (
        (1, 6, 7),
        4,
        4,
        1,
    )
    assert free_blocks(rest) == 2


def test_a_free_block_that_was_found_is_not_handed_out_beside():
    """Only free blocks are left, the one found in front of them."""
    store = cached((FIRST, 1), fresh=10, tail=((1, FIRST), (2, SECOND), (3, None)))
    sequence, rest = block_manager.allocate(LIMITS, store, waiting(9), (1,))
    assert sequence.blocks == (1, 2, 3)
    assert free_blocks(rest) == 0
    assert dict(rest.cached) == {FIRST: (1,)}  # the second one is written again


def test_only_blocks_found_in_use_cost_nothing():
    sequence = waiting(13)
    store = cached((FIRST, 1), (SECOND, 2), tail=((2, SECOND),))
    assert block_manager.unshared_blocks(LIMITS, store, sequence, ()) == 4
    assert block_manager.unshared_blocks(LIMITS, store, sequence, (1,)) == 3
    assert block_manager.unshared_blocks(LIMITS, store, sequence, (1, 2)) == 3


@pytest.mark.parametrize(
    ("computed", "crosses"), [(3, False), (4, True), (5, False), (7, False), (8, True)]
)
def test_the_first_token_of_a_block_crosses_a_border(computed, crosses):
    assert block_manager.crosses(LIMITS, decoding("a", computed)) is crosses


@pytest.mark.parametrize(
    ("computed", "held", "possible"), [(4, 9, False), (4, 8, True), (3, 9, True), (5, 9, True)]
)
def test_one_can_go_on_that_crosses_no_border_or_finds_a_free_block(computed, held, possible):
    sequence = decoding("a", computed)
    assert block_manager.can_append(LIMITS, pool(9, held), sequence) is possible


def test_without_a_bound_everybody_can_go_on():
    assert block_manager.can_append(LIMITS, Pool(None), decoding("a", 4, 1))


def test_a_block_is_appended_at_a_border_only():
    before = pool(9, 2)
    sequence, rest = block_manager.may_append(LIMITS, before, decoding("a", 8, 1, 2))
    assert (sequence.blocks, rest) == ((1, 2, 3), pool(9, 3))
    inside = decoding("a", 7, 1, 2)
    assert block_manager.may_append(LIMITS, before, inside) == (inside, before)


@pytest.mark.parametrize(
    ("computed", "published", "contents"),
    [
        (3, 0, {}),
        (4, 0, {FIRST: (1,)}),
        (7, 0, {FIRST: (1,)}),
        (8, 0, {FIRST: (1,), SECOND: (2,)}),
        (8, 1, {SECOND: (2,)}),
        (9, 2, {}),
    ],
)
def test_full_blocks_can_be_found_once_they_are_computed(computed, published, contents):
    sequence = waiting(9, name="s", computed=computed, published=published, blocks=(1, 2, 3))
    after, rest = block_manager.hash_blocks(LIMITS, pool(9, 3), sequence)
    assert after.published == computed // 4
    assert dict(rest.cached) == contents


def test_of_two_blocks_with_the_same_content_the_one_filled_last_is_found():
    store = pool(9, 4)
    for block in (1, 2):
        sequence = decoding("s", 4, block)
        _, store = block_manager.hash_blocks(LIMITS, store, sequence)
    assert dict(store.cached) == {FIRST: (2,)}
    assert block_manager.prefix_hit(LIMITS, store, waiting(5, content=(("s", 5),))) == (2,)


def test_a_block_of_generated_tokens_is_found_by_who_generated_them():
    sequence = decoding("a", 8, 1, 2, content=(("s", 6),), generated=2, published=1)
    _, rest = block_manager.hash_blocks(LIMITS, pool(9, 2), sequence)
    assert dict(rest.cached) == {(("s", 6), ("out:a", 2)): (2,)}


def test_blocks_come_back_at_the_end_the_last_one_of_a_table_first():
    store = pool(9, 8)._replace(tail=((8, None),))
    rest = block_manager.deallocate(store, decoding("a", 9, 4, 2, 7), (), 4)
    assert [block for block, _ in rest.tail] == [8, 7, 2, 4]
    assert free_blocks(rest) == free_blocks(store) + 3


def test_blocks_that_another_one_holds_stay():
    sequence, other = decoding("a", 6, 1, 2), decoding("b", 6, 1, 3)
    rest = block_manager.deallocate(pool(9, 3), sequence, (sequence, other), 4)
    assert rest.tail == ((2, None),)


def test_free_blocks_can_still_be_found_if_they_were_full():
    sequence = decoding("s", 9, 1, 2, 3, published=2)
    rest = block_manager.deallocate(cached((FIRST, 1), (SECOND, 2)), sequence, (), 4)
    assert rest.tail == ((3, None), (2, SECOND), (1, FIRST))
    assert dict(rest.cached) == {FIRST: (1,), SECOND: (2,)}


@pytest.mark.parametrize(("position", "expected"), [(0, 28), (3, 31), (4, 8), (7, 11), (8, 20)])
def test_a_slot_is_that_of_the_block_and_the_place_in_it(position, expected):
    assert block_manager.slot((7, 2, 5), position, 4) == expected
