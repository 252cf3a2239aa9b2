"""The blocks of a request from the left: padding, what was cached, the prompt, its output."""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

KINDS = ("padding", "cached", "prompt", "generated")
MAX_ALONE = 24  # blocks in a row that are drawn one by one


class Cell(NamedTuple):
    """Blocks in a row that are alike, with the tokens of each kind in one of them."""

    blocks: int
    tokens: tuple[tuple[str, int], ...]


def cells(padding: int, cached: int, prompt: int, generated: int, block_size: int) -> list[Cell]:
    """The row of a request: `padding` in blocks, the others in tokens whose KV is computed.

    In a long row blocks that are alike are one cell.
    """
    lengths = (padding * block_size, cached, prompt, generated)
    row = list(_blocks(lengths, block_size))
    if len(row) <= MAX_ALONE:
        return [Cell(1, tokens) for tokens in row]
    return [Cell(len(list(alike)), tokens) for tokens, alike in groupby(row)]


def _blocks(lengths: tuple[int, ...], block_size: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """The tokens of each kind in each block."""
    left = dict(zip(KINDS, lengths, strict=True))
    while any(left.values()):
        room = block_size
        held = []
        for kind in KINDS:
            taken = min(room, left[kind])
            if taken:
                held.append((kind, taken))
                left[kind] -= taken
                room -= taken
        yield tuple(held)
