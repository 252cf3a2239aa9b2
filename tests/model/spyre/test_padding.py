from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.pool import blocks_for
from schedproof.model.spyre import documented


class Prefill(NamedTuple):
    """A prompt and the sizes it is cut by, in tokens."""

    prompt: int
    chunk: int
    block: int

    @property
    def left_padding(self) -> int:
        return documented.left_padding_blocks(self.prompt, self.chunk, self.block) * self.block


@st.composite
def prefills(draw: st.DrawFn) -> Prefill:
    block = draw(st.sampled_from((1, 2, 3, 4, 16, 64)))
    chunk = block * draw(st.integers(1, 9))
    border = draw(st.integers(0, 12)) * draw(st.sampled_from((block, chunk)))
    near = border + draw(st.integers(-1, 2))
    return Prefill(draw(st.one_of(st.just(max(near, 1)), st.integers(1, 2000))), chunk, block)


def chunks_of(one: Prefill) -> list[int]:
    """The real tokens of each chunk, as the scheduler asks for them one after the other."""
    chunks: list[int] = []
    while sum(chunks) < one.prompt:
        start, end = documented.next_chunk(one.prompt, sum(chunks), one.chunk, one.block)
        assert start == sum(chunks) < end
        chunks.append(end - start)
    return chunks


@given(prefills())
def test_left_padding_is_whole_blocks_and_shorter_than_a_chunk(one: Prefill) -> None:
    assert one.left_padding % one.block == 0
    assert 0 <= one.left_padding < one.chunk


@given(prefills())
def test_chunks_add_up_to_the_prompt(one: Prefill) -> None:
    chunks = chunks_of(one)
    assert sum(chunks) == one.prompt
    assert len(chunks) == documented.chunk_count(one.prompt, one.chunk)


@given(prefills())
def test_every_chunk_but_the_last_is_full_once_the_left_padding_is_counted(one: Prefill) -> None:
    first, *others = chunks_of(one)
    *full, last = [one.left_padding + first, *others]
    assert all(chunk == one.chunk for chunk in full)
    assert last <= one.chunk


@given(prefills())
def test_the_last_token_is_in_the_last_block_of_the_last_chunk(one: Prefill) -> None:
    end = documented.chunk_count(one.prompt, one.chunk) * one.chunk
    assert end - one.block < one.left_padding + one.prompt <= end


@given(prefills())
def test_one_block_less_of_left_padding_would_not_be_aligned(one: Prefill) -> None:
    padded = one.left_padding + blocks_for(one.prompt, one.block) * one.block
    assert padded % one.chunk == 0
    assert padded - one.chunk < one.prompt


@given(prefills())
def test_the_rest_fits_into_a_chunk_exactly_when_the_chunk_in_turn_ends_the_prompt(
    one: Prefill,
) -> None:
    computed = 0
    for chunk in chunks_of(one):
        ends = computed + chunk == one.prompt
        assert documented.is_last_chunk(one.prompt, computed, one.chunk) is ends
        computed += chunk


@given(prefills(), st.data())
def test_the_chunk_in_turn_is_that_of_the_first_token_to_compute_whole(
    one: Prefill, data: st.DataObject
) -> None:
    """Wherever a cached prefix ends: the chunks are those of a prompt without one."""
    computed = data.draw(st.integers(0, one.prompt - 1))
    start = 0
    for tokens in chunks_of(one):
        if start + tokens > computed:
            break
        start += tokens
    expected = (start, start + tokens)
    assert documented.next_chunk(one.prompt, computed, one.chunk, one.block) == expected


@pytest.mark.parametrize(
    ("prompt", "computed", "chunk"),
    [
        # A block of padding, then 4, 8 and 6 tokens.
        (18, 0, (0, 4)),
        (18, 3, (0, 4)),
        (18, 4, (4, 12)),
        (18, 8, (4, 12)),
        (18, 12, (12, 18)),
        (18, 17, (12, 18)),
        # No padding.
        (16, 4, (0, 8)),
        (16, 8, (8, 16)),
        (16, 12, (8, 16)),
    ],
)
def test_a_prefix_that_is_cached_moves_the_chunk_in_turn_but_not_its_borders(
    prompt: int, computed: int, chunk: tuple[int, int]
) -> None:
    assert documented.next_chunk(prompt, computed, chunk_size=8, block_size=4) == chunk


@pytest.mark.parametrize(
    ("prompt", "left_padding", "chunks"),
    [
        (15, 64, [15]),
        (302, 64, [64, 128, 110]),
        (64, 64, [64]),
        (65, 0, [65]),
        (128, 0, [128]),
        (129, 64, [64, 65]),
        (192, 64, [64, 128]),
        (193, 0, [128, 65]),
        (256, 0, [128, 128]),
    ],
)
def test_prompts_of_the_page_and_at_block_borders(
    prompt: int, left_padding: int, chunks: list[int]
) -> None:
    one = Prefill(prompt, chunk=128, block=64)
    assert one.left_padding == left_padding
    assert chunks_of(one) == chunks


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (64, 1), (65, 2), (128, 2)])
def test_a_block_begun_counts_whole(tokens: int, blocks: int) -> None:
    assert blocks_for(tokens, 64) == blocks
