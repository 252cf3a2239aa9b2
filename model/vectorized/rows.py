"""What the lanes' step is written in: a row is a number for each lane.

NumPy takes whole rows. Compiled by Numba, the same functions are run lane by lane, and a row is
one number: so nothing may branch on a row but by `choose`, `any request`, `among` and `spread`.
"""

from typing import Any

import numpy as np

from ..pool import blocks_for

Row = Any  # an integer or a truth value, or an array with one for each lane
Rows = Any  # an array of rows: requests, or fields of a lane


def choose(condition: Row, yes: Row, no: Row) -> Row:
    """`yes` where the condition holds, else `no`."""
    return np.where(condition, yes, no)


def any_row(condition: Row) -> bool:
    """The condition holds in some lane."""
    return bool(np.any(condition))


def among(rows: Rows, condition: Row) -> Rows:
    """What is there of the lanes in which the condition holds, to reckon with no others."""
    return np.compress(condition, rows, axis=-1)


def spread(condition: Row, truths: Row) -> Row:
    """Truths of the lanes `among` all, put back in their places; false elsewhere."""
    everywhere = np.zeros(condition.shape, np.bool_)
    everywhere[condition] = truths
    return everywhere


def within_block(tokens: Row, block_size: int) -> Row:
    """Tokens beyond whole blocks. In NumPy `%` takes several times as long."""
    return tokens - tokens // block_size * block_size


def in_last_block(tokens: Row, block_size: int) -> Row:
    """Tokens in the last block that holds any of `tokens`, which are at least one."""
    return within_block(tokens - 1, block_size) + 1


def rectangle(longest: Row, last: Row, block_size: int) -> Row:
    """The tkv of a batch: its longest member sets the width, the fullest last block the end."""
    return (blocks_for(longest, block_size) - 1) * block_size + last
