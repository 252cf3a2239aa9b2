"""The formulas of `spyre.volumetric` on rows: what newcomer and members can still reach, in tokens.

The same sums with the same names; `formula` is a place in FORMULAS, the same in all lanes.
"""

import numpy as np

from ..spyre.padding import blocks_for
from .rows import Row, within_block

FORMULAS = (
    "document_own_tkv",
    "document_realigned",
    "document_max_tkv",
    "document_figure",
    "0.8.0",
    "1.10.0",
    "2.0.1",
    "2.1.0",
    "2.1.2",
    "common_base",
)
OWN_TKV, REALIGNED, MAX_TKV, FIGURE = range(4)
V0_8_0, V1_10_0, V2_0_1, V2_1_0, V2_1_2, COMMON_BASE = range(4, 10)


def of_newcomer(formula: int, tkv: Row, prompt: Row, remaining: Row, block_size: int) -> Row:
    """The largest tkv of a newcomer that may run `remaining` decode steps."""
    if formula in (OWN_TKV, MAX_TKV):
        return prompt + remaining
    if formula == FIGURE:
        return round_up(prompt + remaining + 1, block_size)
    if formula == V0_8_0:
        return tkv + round_up(np.maximum(prompt - tkv, 0), block_size) + remaining
    base = np.maximum(tkv, prompt)
    if formula == COMMON_BASE:
        return round_up(base + remaining, block_size)
    end = realigned(prompt, base // block_size, block_size) + remaining
    if formula == V2_1_0:
        return round_up(end, block_size)
    if formula == V2_1_2:
        return round_up(end, block_size) + block_size
    return end


def of_member(
    formula: int,
    tkv: Row,
    newcomer: Row,
    prompt: Row,
    computed: Row,
    remaining: Row,
    own_tkv: Row,
    block_size: int,
) -> Row:
    """The largest tkv of a decoding request once a prompt of `newcomer` tokens has joined."""
    if formula == OWN_TKV:
        return own_tkv + remaining + block_size
    if formula == MAX_TKV:
        return tkv + remaining + block_size
    if formula == FIGURE:
        end = computed + remaining + 1
        pad = np.maximum(blocks_for(newcomer, block_size) - blocks_for(computed + 1, block_size), 0)
        return np.maximum(round_up(end, block_size) + block_size, pad * block_size + end)
    if formula == V0_8_0:
        base = tkv + round_up(np.maximum(newcomer - tkv, 0), block_size)
        return base + remaining - prompt
    base = np.maximum(tkv, newcomer)
    if formula == V2_0_1:
        return base + remaining + block_size
    if formula in (V2_1_0, COMMON_BASE):
        return round_up(base + remaining, block_size)
    if formula == V2_1_2:
        return round_up(base + remaining, block_size) + block_size
    end = realigned(computed, base // block_size, block_size) + remaining
    return end + block_size if formula == REALIGNED else end


def realigned(tokens: Row, width: Row, block_size: int) -> Row:
    """Position of a member with its last block pushed to block `width`, as `tkv.realigned`."""
    return width * block_size + within_block(tokens, block_size)


def round_up(tokens: Row, block_size: int) -> Row:
    """Tokens of the whole blocks that hold `tokens`."""
    return blocks_for(tokens, block_size) * block_size
