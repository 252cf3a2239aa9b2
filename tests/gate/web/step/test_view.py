"""The blocks of a request: every token is in one, in order, and none is too full."""

from hypothesis import given
from hypothesis import strategies as st

from schedproof.gate.web.step.view import KINDS, MAX_ALONE, Cell, cells

COUNT = st.integers(0, 300)


def test_padding_then_prompt_then_what_was_generated():
    assert cells(1, 0, 3, 2, 4) == [
        Cell(1, (("padding", 4),)),
        Cell(1, (("prompt", 3), ("generated", 1))),
        Cell(1, (("generated", 1),)),
    ]
    assert cells(0, 0, 0, 0, 4) == []


@given(padding=st.integers(0, 40), cached=COUNT, prompt=COUNT, out=COUNT, size=st.integers(1, 64))
def test_every_token_is_in_a_block(padding, cached, prompt, out, size):
    row = cells(padding, cached, prompt, out, size)
    lengths = dict(zip(KINDS, (padding * size, cached, prompt, out), strict=True))
    for kind, length in lengths.items():
        assert sum(cell.blocks * dict(cell.tokens).get(kind, 0) for cell in row) == length
    whole = [sum(count for _, count in cell.tokens) for cell in row]
    assert all(tokens == size for tokens in whole[:-1])
    assert all(0 < tokens <= size for tokens in whole[-1:])
    kinds = [kind for cell in row for kind, _ in cell.tokens]
    assert kinds == sorted(kinds, key=KINDS.index)


def test_a_long_row_has_one_cell_for_blocks_that_are_alike():
    assert [cell.blocks for cell in cells(0, 0, 64 * 500, 1, 64)] == [500, 1]
    assert len(cells(0, 0, 64 * MAX_ALONE, 0, 64)) == MAX_ALONE
