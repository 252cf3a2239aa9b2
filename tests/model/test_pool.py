"""The free list by example, and against a plain list of blocks in the order of hand-out."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schedproof.model.pool import (
    Content,
    Pool,
    cached_blocks,
    forget,
    free_blocks,
    give_back,
    prefix,
    publish,
    take,
    touch,
)

CONTENTS = st.lists(
    st.tuples(st.sampled_from(("s", "t")), st.integers(1, 6)), min_size=1, max_size=4
).map(tuple)


def tokens(content):
    """Each token as its stream and its number there; a stream used again starts again."""
    return [(stream, number) for stream, length in content for number in range(length)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ()),
        (1, (("s", 1),)),
        (4, (("s", 4),)),
        (5, (("s", 4), ("t", 1))),
        (6, (("s", 4), ("t", 2))),
        (7, (("s", 4), ("t", 2), ("s", 1))),
        (9, (("s", 4), ("t", 2), ("s", 3))),
        (12, (("s", 4), ("t", 2), ("s", 3))),
    ],
)
def test_a_prefix_ends_within_a_segment_or_at_its_end(count, expected):
    assert prefix((("s", 4), ("t", 2), ("s", 3)), count) == expected


@given(CONTENTS, CONTENTS, st.integers(0, 25))
def test_prefixes_have_the_same_name_exactly_if_they_have_the_same_tokens(first, other, count):
    assert tokens(prefix(first, count)) == tokens(first)[:count]
    same = tokens(first)[:count] == tokens(other)[:count]
    assert (prefix(first, count) == prefix(other, count)) is same


def filled_with(content, blocks):
    """A pool in which block `number` of the content (from 1) is found as the block given."""
    return publish(Pool(), [(block, prefix(content, 4 * n)) for n, block in blocks.items()])


@pytest.mark.parametrize(
    ("blocks", "hit"),
    [
        ({}, ()),
        ({1: 7}, (7,)),
        ({1: 7, 2: 5}, (7, 5)),
        ({1: 7, 2: 5, 3: 6}, (7, 5, 6)),
        # A gap ends the run, wherever it is.
        ({2: 5, 3: 6}, ()),
        ({1: 7, 3: 6}, (7,)),
    ],
)
def test_the_run_of_cached_blocks_starts_with_the_prompt_and_has_no_gap(blocks, hit):
    content = (("s", 6), ("t", 12))
    assert cached_blocks(filled_with(content, blocks), content, 18, 4) == hit


@pytest.mark.parametrize(("prompt", "hit"), [(3, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2)])
def test_the_last_token_of_a_prompt_is_never_taken_from_the_cache(prompt, hit):
    pool = filled_with((("s", 12),), {1: 1, 2: 2, 3: 3})
    assert cached_blocks(pool, (("s", prompt),), prompt, 4) == tuple(range(1, hit + 1))


def test_of_several_blocks_the_one_filled_first_is_found():
    content = (("s", 5),)
    pool = publish(filled_with(content, {1: 8}), [(3, prefix(content, 4))])
    assert cached_blocks(pool, content, 5, 4) == (8,)


def test_equal_blocks_behind_different_prefixes_are_different():
    pool = filled_with((("s", 4), ("t", 4)), {1: 1, 2: 2})
    assert cached_blocks(pool, (("u", 4), ("t", 4), ("u", 1)), 9, 4) == ()
    assert cached_blocks(pool, (("s", 4), ("u", 4), ("u", 1)), 9, 4) == (1,)


@given(CONTENTS, CONTENTS, st.integers(1, 3))
def test_the_hit_is_the_longest_common_run_of_full_blocks(old, new, block):
    cached = range(1, len(tokens(old)) // block + 1)
    pool = publish(Pool(), [(number, prefix(old, number * block)) for number in cached])
    prompt = tokens(new)
    common = [
        number
        for number in cached
        if number * block < len(prompt)
        and prompt[: number * block] == tokens(old)[: number * block]
    ]
    assert cached_blocks(pool, new, len(prompt), block) == tuple(common)


A: Content = (("a", 4),)
B: Content = (("b", 4),)


def test_a_fresh_pool_hands_out_1_2_3():
    taken, pool = take(Pool(), 2)
    assert taken == (1, 2)
    assert take(pool, 1)[0] == (3,)


def test_a_block_that_is_forgotten_is_not_found_and_another_of_the_same_is():
    pool = publish(Pool(), [(1, A), (2, A), (3, B)])
    assert forget(pool, A, 1).cached == {A: (2,), B: (3,)}
    assert forget(forget(pool, A, 1), A, 2).cached == {B: (3,)}
    assert forget(pool, B, 1) == pool


@pytest.mark.parametrize("count", [0, -1, -5])
def test_nothing_is_taken_where_nothing_is_missing(count):
    pool = Pool(9, (7, 8), 3, ((5, A),), {A: (5,)})
    assert take(pool, count) == ((), pool)


def test_the_head_is_handed_out_before_what_is_fresh_and_the_tail_last():
    pool = Pool(size=6, head=(2, 1), fresh=5, tail=((4, None), (3, A)), cached={A: (3,)})
    assert take(pool, 1) == ((2,), pool._replace(head=(1,)))
    assert take(pool, 3) == ((2, 1, 5), pool._replace(head=(), fresh=6))
    assert take(pool, 5) == ((2, 1, 5, 6, 4), Pool(6, (), 7, ((3, A),), {A: (3,)}))
    assert take(pool, 6) == ((2, 1, 5, 6, 4, 3), Pool(6, (), 7))


def test_without_a_size_there_is_always_a_fresh_block():
    pool = Pool(None, fresh=3, tail=((2, A), (1, None)), cached={A: (2,)})
    taken, rest = take(pool, 100)
    assert taken == tuple(range(3, 103))
    assert rest == pool._replace(fresh=103)


def test_free_are_the_blocks_given_back_and_those_never_handed_out():
    assert free_blocks(Pool(6)) == 6
    assert free_blocks(Pool(6, head=(2, 1), fresh=5, tail=((4, None),))) == 2 + 2 + 1
    assert free_blocks(Pool(6, fresh=7)) == 0
    assert free_blocks(Pool(None, head=(2, 1), fresh=5)) is None


def test_what_a_block_held_is_found_until_it_is_handed_out_again():
    pool = Pool(3, fresh=4, tail=((1, A), (3, A), (2, B)), cached={A: (1, 3), B: (2,)})
    first, pool = take(pool, 1)
    assert (first, pool.cached) == ((1,), {A: (3,), B: (2,)})
    second, pool = take(pool, 1)
    assert (second, pool.cached) == ((3,), {B: (2,)})
    assert take(pool, 1) == ((2,), Pool(3, fresh=4))


def test_of_two_blocks_with_the_same_content_the_one_not_handed_out_is_still_found():
    for first, second in ((1, 3), (3, 1)):
        pool = Pool(3, fresh=4, tail=((first, A), (second, A)), cached={A: (1, 3)})
        assert take(pool, 1) == ((first,), Pool(3, (), 4, ((second, A),), {A: (second,)}))


def test_taking_a_block_does_not_change_the_pool_that_it_was_taken_from():
    pool = Pool(1, fresh=2, tail=((1, A),), cached={A: (1,)})
    take(pool, 1)
    assert pool == Pool(1, fresh=2, tail=((1, A),), cached={A: (1,)})
    publish(pool, [(1, B)])
    assert pool.cached == {A: (1,)}


class Copied(dict[Any, Any]):
    """A dictionary that counts how often it is copied."""

    copies = 0

    def keys(self):
        Copied.copies += 1
        return super().keys()

    __iter__ = None  # type: ignore[assignment]  # so that `dict(...)` asks for the keys


def test_what_is_cached_is_copied_once_for_all_blocks_that_are_taken():
    contents = [(("a", 4 * number),) for number in range(1, 9)]
    cached = Copied({content: (number,) for number, content in enumerate(contents, 1)})
    tail = tuple(enumerate(contents, 1))
    Copied.copies = 0
    taken, left = take(Pool(size=8, fresh=9, tail=tail, cached=cached), 5)
    assert (taken, Copied.copies) == ((1, 2, 3, 4, 5), 1)
    assert sorted(left.cached.values()) == [(6,), (7,), (8,)]


def test_a_block_that_is_touched_leaves_the_free_list_and_is_found_as_before():
    pool = Pool(4, (4,), 5, ((1, A), (2, None), (3, B)), {A: (1,), B: (3,)})
    assert touch(pool, [1, 3]) == pool._replace(tail=((2, None),))
    assert touch(pool, [9]) == pool


def test_blocks_come_back_at_the_end_in_the_order_given():
    pool = Pool(4, (), 5, ((1, A),), {A: (1,), B: (3,)})
    freed = give_back(pool, [(2, None), (3, B), (4, None)], nameless_first=False)
    assert freed == pool._replace(tail=((1, A), (2, None), (3, B), (4, None)))


def test_without_a_size_nobody_keeps_a_block_that_is_not_handed_out_again():
    pool = Pool(None, fresh=5)
    given = [(2, None), (3, B), (4, None)]
    assert give_back(pool, given, nameless_first=False) == pool
    assert give_back(pool, given, nameless_first=True) == Pool(None, head=(2, 4), fresh=5)
    assert take(pool, 2)[0] == (5, 6)


def test_blocks_that_hold_nothing_to_be_found_come_back_to_the_front():
    pool = Pool(5, (5,), 6, ((1, A),), {A: (1,), B: (3,)})
    freed = give_back(pool, [(2, None), (3, B), (4, None)], nameless_first=True)
    assert freed == pool._replace(head=(2, 4, 5), tail=((1, A), (3, B)))
    assert take(freed, 2)[0] == (2, 4)


def test_of_two_blocks_with_the_same_content_the_one_filled_first_is_in_front():
    pool = publish(publish(Pool(), [(2, A), (1, B)]), [(3, A)])
    assert pool.cached == {A: (2, 3), B: (1,)}
    assert pool._replace(cached={}) == Pool()


class FreeList(RuleBasedStateMachine):
    """A pool against the list of its free blocks, the next one in front."""

    @initialize(size=st.integers(1, 8), nameless_first=st.booleans())
    def start(self, size, nameless_first):
        self.nameless_first = nameless_first
        self.pool = Pool(size)
        self.free = list(range(1, size + 1))
        self.held: list[int] = []
        self.holds: dict[int, Content] = {}

    @rule(data=st.data())
    def take(self, data):
        count = data.draw(st.integers(0, len(self.free)))
        taken, self.pool = take(self.pool, count)
        assert list(taken) == self.free[:count]
        del self.free[:count]
        self.held += taken
        for block in taken:
            self.holds.pop(block, None)

    @precondition(lambda self: set(self.held) - self.holds.keys())
    @rule(data=st.data(), content=st.sampled_from((A, B)))
    def fill(self, data, content):
        block = data.draw(st.sampled_from(sorted(set(self.held) - self.holds.keys())))
        # Filled again, a block goes behind the others in `holds`, as in the pool.
        self.pool = publish(self.pool, [(block, content)])
        self.holds[block] = content

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def leave(self, data):
        blocks = data.draw(st.lists(st.sampled_from(self.held), unique=True))
        freed = [(block, self.holds.get(block)) for block in blocks]
        self.pool = give_back(self.pool, freed, self.nameless_first)
        self.held = [block for block in self.held if block not in blocks]
        if self.nameless_first:
            nameless = [block for block in blocks if block not in self.holds]
            named = [block for block in blocks if block in self.holds]
            self.free = nameless + self.free + named
        else:
            self.free += blocks

    @precondition(lambda self: set(self.free) & self.holds.keys())
    @rule(data=st.data())
    def use_again(self, data):
        block = data.draw(st.sampled_from(sorted(set(self.free) & self.holds.keys())))
        self.pool = touch(self.pool, [block])
        self.free.remove(block)
        self.held.append(block)

    @invariant()
    def every_filled_block_is_found_the_first_one_first(self):
        expected: dict[Any, tuple[int, ...]] = {}
        for block, content in getattr(self, "holds", {}).items():
            expected[content] = (*expected.get(content, ()), block)
        assert dict(getattr(self, "pool", Pool()).cached) == expected

    @invariant()
    def as_many_are_free_as_the_list_has(self):
        if hasattr(self, "pool"):
            assert free_blocks(self.pool) == len(self.free)


TestFreeList = FreeList.TestCase
TestFreeList.settings = settings(max_examples=50, stateful_step_count=20)
