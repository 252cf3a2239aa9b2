"""Lengths, blocks and tkv in symbols, for lemmas about one request or a pair."""

from typing import Any

import z3

from ..smt.numbers import Numbers
from .formulas import Lengths, width


def make_numbers(lengths: Lengths) -> Numbers:
    """Unbounded numbers, among them the tokens of a block where these are symbolic."""
    numbers = Numbers()
    if not isinstance(lengths.block, int):
        numbers.facts.append(lengths.block >= 1)
    return numbers


def lengths_of(block: int | None) -> Lengths:
    """`block` tokens to a block; None: any number of them, by a symbol."""
    return Lengths(z3.Int("block") if block is None else block, None)


def length(numbers: Numbers, name: str, low: int = 1) -> Any:
    """Any number of tokens or steps from `low` on."""
    return numbers.fresh(name, low, None)


def blocks(numbers: Numbers, lengths: Lengths, tokens: Any) -> Any:
    """Blocks that hold `tokens` tokens, at least one."""
    whole, _ = width(numbers, lengths, tokens - 1)
    return whole + 1


def own_tkv(numbers: Numbers, lengths: Lengths, tokens: Any, widest: Any) -> Any:
    """tkv of a request in a batch that is `widest` blocks wide."""
    return (widest - blocks(numbers, lengths, tokens)) * lengths.block + tokens
