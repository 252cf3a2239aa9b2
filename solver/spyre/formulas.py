"""The volumetric formulas of `model.spyre.volumetric`, on symbolic numbers.

Name by name the same; `tests/solver` compares them on concrete numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import z3

from ..numbers import Numbers


class Lengths(NamedTuple):
    """What all formulas measure in: tokens of a block, and tokens that nothing exceeds, if such a
    bound is known."""

    block: int
    longest: int | None


class Member(NamedTuple):
    """A decoding request: is it there at all, tokens computed, decode steps left, its own tkv."""

    here: Any
    computed: Any
    remaining: Any
    tkv: Any


class Joining(NamedTuple):
    """The newcomer: tokens of its prompt, decode steps that it can run."""

    prompt: Any
    remaining: Any


Projected = tuple[Any, list[Any]]
Formula = Callable[[Numbers, Lengths, Any, list[Member], Joining], Projected]


def width(numbers: Numbers, lengths: Lengths, tokens: Any) -> tuple[Any, Any]:
    """Whole blocks in `tokens` (block // size), and the tokens beyond."""
    most = None if lengths.longest is None else lengths.longest // lengths.block + 2
    return numbers.split(tokens, lengths.block, most)


def round_up(numbers: Numbers, lengths: Lengths, tokens: Any) -> Any:
    """Tokens of the whole blocks that hold `tokens`, at least one."""
    blocks, _ = width(numbers, lengths, tokens - 1)
    return (blocks + 1) * lengths.block


def realigned(numbers: Numbers, lengths: Lengths, tokens: Any, whole: Any) -> Any:
    """Position of a member whose last block is pushed to block `whole` (rule SPY-R46)."""
    _, offset = width(numbers, lengths, tokens)
    return whole * lengths.block + offset


def base_of(tkv: Any, newcomer: Joining) -> Any:
    """The wider of batch and prompt."""
    return z3.If(newcomer.prompt > tkv, newcomer.prompt, tkv)


def document_own_tkv(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """The document, each by its own tkv before the newcomer joins."""
    block = lengths.block
    return (
        newcomer.prompt + newcomer.remaining,
        [member.tkv + member.remaining + block for member in decoding],
    )


def document_realigned(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """The document, each by its tkv once the newcomer has joined."""
    own, others = release_1_10_0(numbers, lengths, tkv, decoding, newcomer)
    return own, [one + lengths.block for one in others]


def document_max_tkv(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """The document, each by the max-tkv of the batch."""
    return (
        newcomer.prompt + newcomer.remaining,
        [tkv + member.remaining + lengths.block for member in decoding],
    )


def release_1_10_0(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """vllm-spyre 1.3.0 to 1.10.0."""
    whole, _ = width(numbers, lengths, base_of(tkv, newcomer))
    own = realigned(numbers, lengths, newcomer.prompt, whole) + newcomer.remaining
    return own, [
        realigned(numbers, lengths, member.computed, whole) + member.remaining
        for member in decoding
    ]


def release_2_0_1(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """sendnn-inference 2.0.0 and 2.0.1."""
    base = base_of(tkv, newcomer)
    whole, _ = width(numbers, lengths, base)
    own = realigned(numbers, lengths, newcomer.prompt, whole) + newcomer.remaining
    return own, [base + member.remaining + lengths.block for member in decoding]


def release_2_1_0(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """sendnn-inference 2.1.0."""
    base = base_of(tkv, newcomer)
    whole, _ = width(numbers, lengths, base)
    own = realigned(numbers, lengths, newcomer.prompt, whole) + newcomer.remaining
    return round_up(numbers, lengths, own), [
        round_up(numbers, lengths, base + member.remaining) for member in decoding
    ]


def release_2_1_2(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """sendnn-inference 2.1.1 and later."""
    own, others = release_2_1_0(numbers, lengths, tkv, decoding, newcomer)
    return own + lengths.block, [one + lengths.block for one in others]


def common_base(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """Nobody's: everyone from the wider of batch and prompt, rounded up."""
    base = base_of(tkv, newcomer)
    return round_up(numbers, lengths, base + newcomer.remaining), [
        round_up(numbers, lengths, base + member.remaining) for member in decoding
    ]


FORMULAS: dict[str, Formula] = {
    "document_own_tkv": document_own_tkv,
    "document_realigned": document_realigned,
    "document_max_tkv": document_max_tkv,
    "1.10.0": release_1_10_0,
    "2.0.1": release_2_0_1,
    "2.1.0": release_2_1_0,
    "2.1.2": release_2_1_2,
    "common_base": common_base,
}


def accepts(
    numbers: Numbers, lengths: Lengths, projected: Projected, decoding: list[Member], limit: int
) -> list[Any]:
    """Facts that hold exactly if the walk of `model.spyre.volumetric.accepts` says yes.

    In ascending order the batch at a projection is all that are not below it; from equal ones the
    first, with the largest batch, decides. Products are split into cases: with m or more in the
    batch the projection is at most limit // m.
    """
    own, others = projected
    facts = []

    def fits(batch: Any, tkv: Any) -> Any:
        return z3.And(
            [
                z3.Implies(batch >= size, tkv <= limit // size)
                for size in range(1, len(others) + 2)
                if lengths.longest is None or limit // size < lengths.longest
            ]
        )

    for member, tkv in zip(decoding, others, strict=True):
        batch = [
            z3.And(other.here, reached >= tkv)
            for other, reached in zip(decoding, others, strict=True)
        ]
        asked = z3.And(member.here, tkv < own)
        facts.append(z3.Implies(asked, fits(1 + numbers.count(batch), tkv)))
    outlive = [
        z3.And(member.here, tkv >= own) for member, tkv in zip(decoding, others, strict=True)
    ]
    if outlive:
        facts.append(z3.Implies(z3.Or(outlive), fits(1 + numbers.count(outlive), own)))
    return facts
