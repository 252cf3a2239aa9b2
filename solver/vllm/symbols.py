"""Symbolic tokens and blocks for lemmas about vLLM's scheduler."""

from typing import Any, NamedTuple

import z3

from ..smt.numbers import Numbers, ordered


class SymbolicRequest(NamedTuple):
    """An arbitrary request that the check on arrival has accepted.

    Attributes:
        prompt: the number of tokens of its prompt.
        max_tokens: the number of tokens that it may generate.
        generated: the number of tokens that it has generated so far.
    """

    prompt: Any
    max_tokens: Any
    generated: Any

    @property
    def known(self) -> Any:
        return self.prompt + self.generated

    @property
    def longest(self) -> Any:
        """Return the number of tokens that the request computes in its whole life: all except the
        last one that it generates."""
        return self.prompt + self.max_tokens - 1


def block_of(block: int | None) -> Any:
    """Return the size of a block in tokens: a symbol if `block` is None."""
    return z3.Int("block") if block is None else block


def make_numbers(block: Any) -> Numbers:
    numbers = Numbers()
    if not isinstance(block, int):
        numbers.facts.append(block >= 1)
    return numbers


def some(numbers: Numbers, name: str, low: int = 0) -> Any:
    return numbers.fresh(name, low)


def unfinished(numbers: Numbers, more: int = 0) -> SymbolicRequest:
    """Return an arbitrary request that has a token left to generate. With `more`, it may have
    generated up to that many tokens more than max_tokens.
    """
    request = SymbolicRequest(
        some(numbers, "prompt", 1), some(numbers, "max_tokens", 1), some(numbers, "own")
    )
    numbers.facts.append(request.generated <= request.max_tokens - 1 + more)
    return request


def clamp(behind: Any, threshold: Any, budget: Any) -> Any:
    own = capped(behind, threshold)
    return z3.If(own < budget, own, budget)


def capped(behind: Any, threshold: Any) -> Any:
    return z3.If(z3.And(threshold > 0, threshold < behind), threshold, behind)


def blocks(numbers: Numbers, block: Any, tokens: Any) -> Any:
    """Return the number of blocks that `tokens` tokens need (at least one token), like
    `blocks_for`."""
    whole, _ = numbers.split(tokens - 1, block, None)
    return whole + 1


def tell_order(numbers: Numbers, block: Any, *counts: Any) -> None:
    """If the block size is a symbol, give Z3 the lemma `more_blocks_are_one_block_more` as a
    fact."""
    if not isinstance(block, int):
        ordered(numbers, block, *counts)
