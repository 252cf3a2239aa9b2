"""Names of prefixes and the longest cached run, each against brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.pool import Pool, publish
from schedproof.model.prefix import cached_blocks, prefix

CONTENTS = st.lists(
    st.tuples(st.sampled_from(("s", "t")), st.integers(1, 6)), min_size=1, max_size=4
).map(tuple)


def tokens(content):
    """Each token as its stream and its number there; a stream used again starts anew."""
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
def test_prefixes_have_the_same_name_exactly_if_they_have_the_same_tokens(one, other, count):
    assert tokens(prefix(one, count)) == tokens(one)[:count]
    same = tokens(one)[:count] == tokens(other)[:count]
    assert (prefix(one, count) == prefix(other, count)) is same


def filled_with(content, blocks):
    """A pool in which block `number` of the content (from 1) is found as the block given."""
    return publish(Pool(), [(block, prefix(content, 4 * n)) for n, block in blocks.items()])


@pytest.mark.parametrize(
    ("blocks", "found"),
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
def test_the_run_of_cached_blocks_starts_with_the_prompt_and_has_no_gap(blocks, found):
    content = (("s", 6), ("t", 12))
    assert cached_blocks(filled_with(content, blocks), content, 18, 4) == found


@pytest.mark.parametrize(("prompt", "found"), [(3, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2)])
def test_the_last_token_of_a_prompt_is_never_taken_from_the_cache(prompt, found):
    pool = filled_with((("s", 12),), {1: 1, 2: 2, 3: 3})
    assert cached_blocks(pool, (("s", prompt),), prompt, 4) == tuple(range(1, found + 1))


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
