"""Common prefixes of requests, counted in tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.properties.history.content import (
    common_prefix_len,
    known_tokens,
    surely_shared,
)

from ..build import decoding, waiting

SEGMENTS = st.tuples(st.sampled_from(("a", "b", "out:a")), st.integers(1, 5))
CONTENTS = st.lists(SEGMENTS, max_size=4).map(tuple)


def tokens(content):
    """Every token by itself: its stream, and its place there (each segment begins its stream)."""
    return [(stream, place) for stream, length in content for place in range(length)]


def common_tokens(first, other):
    count = 0
    for mine, yours in zip(tokens(first), tokens(other), strict=False):
        if mine != yours:
            break
        count += 1
    return count


@pytest.mark.parametrize(
    ("first", "other", "shared"),
    [
        ((), (("a", 4),), 0),
        ((("a", 4),), (("a", 4),), 4),
        ((("a", 4),), (("a", 9),), 4),
        ((("a", 4),), (("b", 4),), 0),
        ((("a", 4), ("b", 3)), (("a", 4), ("b", 2)), 6),
        ((("a", 4), ("b", 3)), (("a", 5), ("b", 3)), 4),
        ((("a", 4), ("b", 3), ("c", 1)), (("a", 4), ("c", 3), ("c", 1)), 4),
        ((("a", 4), ("a", 4)), (("a", 8),), 4),
    ],
)
def test_contents_share_what_their_first_segments_agree_on(first, other, shared):
    assert common_prefix_len(first, other) == common_prefix_len(other, first) == shared


@given(CONTENTS, CONTENTS)
def test_segments_share_as_many_tokens_as_their_tokens_one_by_one(first, other):
    assert (
        common_prefix_len(first, other)
        == common_prefix_len(other, first)
        == common_tokens(first, other)
    )


@given(CONTENTS)
def test_a_content_has_everything_in_common_with_itself(content):
    assert common_prefix_len(content, content) == sum(length for _, length in content)


def test_a_request_has_said_its_prompt_and_what_it_generated():
    sequence = waiting("r1", 6, content=(("r0", 4), ("r1", 2)))
    assert known_tokens(sequence) == (("r0", 4), ("r1", 2))
    sequence.emitted = 3
    assert known_tokens(sequence) == (("r0", 4), ("r1", 2), ("out:r1", 3))


def test_a_prompt_may_go_on_with_what_another_generated():
    earlier = decoding("r0", 6, emitted=3)
    again = waiting("r1", 8, content=(("r0", 6), ("out:r0", 2)))
    assert common_prefix_len(again.content, known_tokens(earlier)) == 8
    earlier.emitted = 1
    assert common_prefix_len(again.content, known_tokens(earlier)) == 7


SAYS = (("s", 12),)


@pytest.mark.parametrize(
    ("gone", "shared"),
    [
        # Even before the holder began: of two blocks an index may keep the older newcomer.
        ({"ended_at": 3}, 0),
        ({"ended_at": 5}, 0),
        ({"ended_at": None}, 0),
        # What it had found itself it did not fill.
        ({"ended_at": 7, "prefix_hit": 8}, 8),
    ],
)
def test_what_one_that_runs_holds_is_found_unless_another_filled_it(gone, shared):
    holder = decoding("a", 12, content=SAYS, began=5)
    earlier = decoding("b", 12, content=SAYS, ended="eos", **gone)
    newcomer = waiting("c", 12, content=SAYS)
    assert surely_shared(newcomer, [holder], [holder, newcomer], 4) == 8
    assert surely_shared(newcomer, [holder], [earlier, holder, newcomer], 4) == shared


def test_of_one_that_was_preempted_nothing_is_sure():
    holder, newcomer = decoding("a", 12, content=SAYS, began=5), waiting("c", 12, content=SAYS)
    newcomer.preemptions = 1
    assert surely_shared(newcomer, [holder], [holder, newcomer], 4) == 0
    newcomer.preemptions, holder.preemptions = 0, 1
    # It may have filled such a block twice, and the first of them is free.
    assert surely_shared(newcomer, [holder], [holder, newcomer], 4) == 0
