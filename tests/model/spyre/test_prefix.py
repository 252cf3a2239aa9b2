"""Whole chunks that a prefix hit saves, by example and against brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre.documented import usable_blocks


@pytest.mark.parametrize(
    ("left_padding", "hit", "chunks", "usable"),
    [
        # Chunks of 2 blocks: only whole ones count,
        (0, 1, 2, 0),
        (0, 2, 2, 2),
        (0, 3, 3, 2),
        (0, 4, 3, 4),
        # the last one never,
        (0, 2, 1, 0),
        (0, 3, 2, 2),
        (0, 4, 2, 2),
        # and padding belongs to the first.
        (1, 0, 2, 0),
        (1, 1, 2, 1),
        (1, 2, 2, 1),
        (1, 2, 1, 0),
        (1, 3, 3, 3),
    ],
)
def test_blocks_are_saved_by_whole_chunks_the_last_one_apart(
    left_padding: int, hit: int, chunks: int, usable: int
) -> None:
    assert usable_blocks(left_padding, hit, chunks, chunk_blocks=2) == usable


@given(st.integers(1, 4), st.data())
def test_usable_blocks_are_those_of_the_chunks_that_need_not_run(
    chunk_blocks: int, data: st.DataObject
) -> None:
    chunks = data.draw(st.integers(1, 4))
    pad = data.draw(st.integers(0, chunk_blocks - 1))
    hit = data.draw(st.integers(0, chunks * chunk_blocks - pad))
    there = [True] * (pad + hit) + [False] * (chunks * chunk_blocks - pad - hit)
    rows = [there[n * chunk_blocks : (n + 1) * chunk_blocks] for n in range(chunks)]
    saved = [all(row) for row in rows[:-1]]
    expected = max(sum(saved) * chunk_blocks - pad, 0)
    assert usable_blocks(pad, hit, chunks, chunk_blocks) == expected
