"""The formulas of `spyre.volumetric` on rows, chosen by their place in FORMULAS.

A compiled step cannot call a function that it is given, so the place is an if-chain here.
"""

import numpy as np

from ..spyre import volumetric
from ..spyre.volumetric import Decoding
from .rows import Row

FORMULAS = tuple(volumetric.FORMULAS)
OWN_TKV, REALIGNED, MAX_TKV, FIGURE = range(4)
V0_8_0, V1_10_0, V2_0_1, V2_1_0, V2_1_2, COMMON_BASE = range(4, 10)


def of_newcomer(formula: int, tkv: Row, prompt: Row, remaining: Row, block_size: int) -> Row:
    """The largest tkv of a newcomer that may run `remaining` decode steps."""
    base = np.maximum(tkv, prompt)
    if formula in (OWN_TKV, MAX_TKV):
        return volumetric.newcomer_unpadded(tkv, base, prompt, remaining, block_size)
    if formula == FIGURE:
        return volumetric.newcomer_in_blocks(tkv, base, prompt, remaining, block_size)
    if formula == V0_8_0:
        return volumetric.newcomer_0_8_0(tkv, base, prompt, remaining, block_size)
    if formula == V2_1_0:
        return volumetric.newcomer_2_1_0(tkv, base, prompt, remaining, block_size)
    if formula == V2_1_2:
        return volumetric.newcomer_2_1_2(tkv, base, prompt, remaining, block_size)
    if formula == COMMON_BASE:
        return volumetric.newcomer_common_base(tkv, base, prompt, remaining, block_size)
    return volumetric.newcomer_realigned(tkv, base, prompt, remaining, block_size)


def of_member(formula: int, tkv: Row, newcomer: Row, member: Decoding, block_size: int) -> Row:
    """The largest tkv of a decoding request once a prompt of `newcomer` tokens has joined."""
    base = np.maximum(tkv, newcomer)
    if formula == OWN_TKV:
        return volumetric.member_own_tkv(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == REALIGNED:
        return volumetric.member_realigned(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == MAX_TKV:
        return volumetric.member_max_tkv(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == FIGURE:
        return volumetric.member_figure(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == V0_8_0:
        return volumetric.member_0_8_0(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == V1_10_0:
        return volumetric.member_1_10_0(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == V2_0_1:
        return volumetric.member_2_0_1(np.maximum, tkv, base, newcomer, member, block_size)
    if formula == V2_1_2:
        return volumetric.member_2_1_2(np.maximum, tkv, base, newcomer, member, block_size)
    return volumetric.member_common_base(np.maximum, tkv, base, newcomer, member, block_size)
