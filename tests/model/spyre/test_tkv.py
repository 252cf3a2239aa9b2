from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.pool import blocks_for
from schedproof.model.spyre import documented, release_2_1_2, volumetric


class Batch(NamedTuple):
    """Tokens of each member of a decode batch."""

    lengths: list[int]
    block: int


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    block = draw(st.sampled_from((1, 2, 3, 4, 64)))
    length = st.integers(1, 8 * block) | st.integers(1, 8).map(lambda blocks: blocks * block)
    return Batch(draw(st.lists(length, min_size=1, max_size=8)), block)


@given(batches())
def test_the_batch_is_a_rectangle_of_blocks(batch: Batch) -> None:
    pads = documented.left_pad_blocks(*batch)
    widths = {
        pad + blocks_for(length, batch.block)
        for pad, length in zip(pads, batch.lengths, strict=True)
    }
    assert len(widths) == 1


@given(batches())
def test_padding_is_minimal_the_longest_has_none(batch: Batch) -> None:
    pads = documented.left_pad_blocks(*batch)
    assert min(pads) == 0
    assert pads[batch.lengths.index(max(batch.lengths))] == 0


@given(batches())
def test_all_tkvs_lie_in_the_same_block(batch: Batch) -> None:
    assert len({(one - 1) // batch.block for one in documented.request_tkvs(*batch)}) == 1


@given(batches())
def test_max_tkv_is_the_formula_of_the_dynamics(batch: Batch) -> None:
    """(W - 1) B + max(((n - 1) mod B) + 1), with W the widest member's blocks."""
    lengths, block = batch
    width = max(-(-n // block) for n in lengths)
    assert documented.max_tkv(*batch) == (width - 1) * block + max(
        (n - 1) % block + 1 for n in lengths
    )


@given(batches())
def test_a_member_that_leaves_never_raises_the_max_tkv(batch: Batch) -> None:
    for index in range(len(batch.lengths)):
        rest = batch.lengths[:index] + batch.lengths[index + 1 :]
        assert documented.max_tkv(rest, batch.block) <= documented.max_tkv(*batch)


@given(batches())
def test_one_more_token_moves_each_tkv_by_one_or_by_a_block_more_or_less(batch: Batch) -> None:
    """The jump rules: a request that crosses a block border with padding falls back a block; if a
    member without padding crosses, all requests that do not cross are pushed a block forward.
    """
    lengths, block = batch
    pads = documented.left_pad_blocks(*batch)
    crosses = [length % block == 0 for length in lengths]
    widens = any(cross and not pad for cross, pad in zip(crosses, pads, strict=True))
    before = documented.request_tkvs(*batch)
    after = documented.request_tkvs([length + 1 for length in lengths], block)
    for cross, old, new in zip(crosses, before, after, strict=True):
        assert new - old - 1 == block * (widens - cross)


@pytest.mark.parametrize(
    ("lengths", "before", "after"),
    [
        # With padding: back by a block. The other one just goes on.
        ([264, 128], [264, 320], [265, 257]),
        # Without padding: the other one forward by a block.
        ([320, 100], [320, 292], [321, 357]),
        # Both at a border: the rectangle widens, and both fill their new block.
        ([320, 64], [320, 320], [321, 321]),
        ([63, 64], [63, 64], [128, 65]),
    ],
)
def test_crossing_a_block_with_and_without_padding(
    lengths: list[int], before: list[int], after: list[int]
) -> None:
    assert documented.request_tkvs(lengths, 64) == before
    assert documented.request_tkvs([length + 1 for length in lengths], 64) == after


def test_an_empty_batch_has_no_tkv() -> None:
    assert documented.max_tkv([], 64) == 0
    assert documented.request_tkvs([], 64) == []
    assert documented.left_pad_blocks([], 64) == []


@given(batches(), st.integers(1, 500))
def test_the_tkv_reported_after_a_last_chunk_is_that_of_the_batch_with_the_prompt(
    batch: Batch, prompt: int
) -> None:
    reported = release_2_1_2.tkv_after_last_chunk(prompt, documented.max_tkv(*batch), batch.block)
    assert reported == documented.max_tkv([*batch.lengths, prompt], batch.block)


@given(st.integers(2, 64), st.integers(0, 5), st.integers(0, 5), st.data())
def test_realigned_is_the_true_tkv_of_a_member_that_does_not_end_on_a_border(
    block: int, own: int, wider: int, data: st.DataObject
) -> None:
    length = own * block + data.draw(st.integers(1, block - 1))
    width = own + wider
    widest = width * block + data.draw(st.integers(1, block))
    assert (
        volumetric.realigned(length, width, block)
        == documented.request_tkvs([length, widest], block)[0]
    )


@pytest.mark.parametrize(("tokens", "position"), [(63, 191), (64, 128), (65, 129), (128, 128)])
def test_realigned_places_a_member_on_a_border_in_the_block_as_if_it_had_no_token_there(
    tokens: int, position: int
) -> None:
    """The releases' border case: `realigned` gives 128 where the tkv is 192."""
    assert volumetric.realigned(tokens, 2, 64) == position
