"""The chunk plan of `model.spyre.documented`, on symbolic numbers.

Name by name the same; `tests/solver` compares them on concrete numbers.
"""

from typing import Any, NamedTuple

import z3

from ..numbers import Numbers


class Plan(NamedTuple):
    """A prompt and the chunk in turn. `prompt`, `computed`, `start` and `end` in tokens, `held`
    (by the prompt) and `left` in blocks; `index` is the number of the chunk, of `chunks`."""

    block: Any
    chunk_blocks: Any
    prompt: Any
    computed: Any
    held: Any
    left: Any
    chunks: Any
    index: Any
    start: Any
    end: Any

    @property
    def chunk(self) -> Any:
        """Tokens of a chunk."""
        return _plain(self.chunk_blocks * self.block)


def plan(
    numbers: Numbers, sizes: tuple[Any, Any], prompt: Any, computed: Any, padding_more: int = 0
) -> Plan:
    """`model.spyre.documented.next_chunk`, with `padding_more` blocks more of padding."""
    block, chunk_blocks = sizes
    chunk = _plain(chunk_blocks * block)
    before, _ = numbers.split(prompt - 1, chunk, None)
    whole, _ = numbers.split(prompt - 1, block, None)
    left = (before + 1) * chunk_blocks - (whole + 1) + padding_more
    index, _ = numbers.split(_plain(left * block + computed), chunk, None)
    start = _larger(index * chunk - left * block, 0)
    end = _smaller((index + 1) * chunk - left * block, prompt)
    return Plan(
        block, chunk_blocks, prompt, computed, whole + 1, left, before + 1, index, start, end
    )


def usable_blocks(numbers: Numbers, left: Any, hit: Any, chunks: Any, chunk_blocks: Any) -> Any:
    """`model.spyre.documented.usable_blocks`."""
    whole, _ = numbers.split(_plain(left + hit), chunk_blocks, None)
    return _larger(_smaller(whole, chunks - 1) * chunk_blocks - left, 0)


def progress(one: Plan, prefix_hit: Any, whole_first_chunk: bool) -> tuple[Any, Any]:
    """`progress` of 2.1.2 (`whole_first_chunk`) or 2.5.2: tokens counted, tokens with blocks."""
    left = one.left * one.block
    given = _smaller(one.computed + one.chunk, one.prompt)
    cut = _smaller(one.computed + one.chunk - left, one.prompt)
    first = z3.And(one.computed == prefix_hit, prefix_hit < one.chunk - left)
    if whole_first_chunk:
        return z3.If(z3.And(first, prefix_hit == 0), cut, given), given
    counted = z3.If(first, cut, given)
    return counted, counted


def _plain(number: Any) -> Any:
    """In Z3's normal form: numbers that are equal as they stand are divided once."""
    return z3.simplify(number) if z3.is_expr(number) else number


def _larger(one: Any, other: Any) -> Any:
    return z3.If(one > other, one, other)


def _smaller(one: Any, other: Any) -> Any:
    return z3.If(one < other, one, other)
