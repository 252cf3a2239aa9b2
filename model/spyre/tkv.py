"""Decode padding and tkv: the batch is a rectangle of blocks, padded on the left.

Source: Spyre scheduling page, "Decode padding". `lengths` are the tokens of each member of the
batch, the token of the step in question included; the lists returned have the same order.
"""

from collections.abc import Sequence
from typing import Any

from ..pool import blocks_for


def left_pad_blocks(lengths: Sequence[int], block_size: int) -> list[int]:
    """Dummy blocks left of each member: the longest has none (SPY-R24) and sets the common width
    (SPY-R09, SPY-R10)."""
    if not lengths:
        return []
    width = blocks_for(max(lengths), block_size)
    return [width - -(-length // block_size) for length in lengths]


def request_tkvs(lengths: Sequence[int], block_size: int) -> list[int]:
    """Padded position up to which each member's cache is filled, in tokens."""
    pads = left_pad_blocks(lengths, block_size)
    return [pad * block_size + length for pad, length in zip(pads, lengths, strict=True)]


def max_tkv(lengths: Sequence[int], block_size: int) -> int:
    """The largest tkv of the batch (SPY-R26), 0 for an empty one."""
    if not lengths:
        return 0
    filled = max([(length - 1) % block_size for length in lengths]) + 1
    return rectangle_tkv(max(lengths), filled, block_size)


def rectangle_tkv(longest: int, filled: int, block_size: int) -> int:
    """The largest tkv of a batch, by its longest member and the most tokens in any last block."""
    before_last: int = (blocks_for(longest, block_size) - 1) * block_size
    return before_last + filled


def realigned(tokens: Any, width: Any, block_size: Any) -> Any:
    """Position of a member with `tokens` tokens whose last block is pushed to block `width`.

    Blocks count from 0. A member that ends exactly on a border is placed in the next block, as
    releases up to 2.6 do (rule SPY-R46). The numbers may be arrays or symbols, as in `volumetric`.
    """
    return width * block_size + tokens % block_size


def tkv_after_last_chunk(prompt: int, tkv: int, block_size: int) -> int:
    """The tkv that releases up to 2.3 report when a prompt joins a batch at `tkv`."""
    base = (max(blocks_for(prompt, block_size), blocks_for(tkv, block_size)) - 1) * block_size
    return base + max((prompt - 1) % block_size, (tkv - 1) % block_size) + 1
