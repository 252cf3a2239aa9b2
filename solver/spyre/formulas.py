"""The volumetric formulas of `model.spyre.volumetric`, on symbolic numbers.

Name by name the same; `tests/solver` compares them on concrete numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import z3

from ...model.spyre.volumetric import split_slack
from ..numbers import Numbers


class Lengths(NamedTuple):
    """What all formulas measure in: tokens of a block (a number, or symbolic), and tokens that
    nothing exceeds, if such a bound is known."""

    block: Any
    longest: int | None


class Member(NamedTuple):
    """A decoding request: is it there at all, tokens computed, decode steps left, its own tkv,
    and tokens of its prompt."""

    here: Any
    computed: Any
    remaining: Any
    tkv: Any
    prompt: Any


class Joining(NamedTuple):
    """The newcomer: tokens of its prompt, decode steps that it can run."""

    prompt: Any
    remaining: Any


class Projected(NamedTuple):
    """Largest tkv that each can still reach; the names are the model's."""

    newcomer: Any
    decoding: list[Any]
    to_the_end: bool = False


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
    return Projected(
        newcomer.prompt + newcomer.remaining,
        [member.tkv + member.remaining + block for member in decoding],
    )


def document_realigned(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """The document, each by its tkv once the newcomer has joined."""
    own, others, _ = release_1_10_0(numbers, lengths, tkv, decoding, newcomer)
    return Projected(own, [one + lengths.block for one in others])


def document_max_tkv(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """The document, each by the max-tkv of the batch."""
    return Projected(
        newcomer.prompt + newcomer.remaining,
        [tkv + member.remaining + lengths.block for member in decoding],
    )


def document_figure(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """What the page's own admission figure was drawn by."""
    own = round_up(numbers, lengths, newcomer.prompt + newcomer.remaining + 1)
    asks, _ = width(numbers, lengths, newcomer.prompt - 1)
    others = []
    for member in decoding:
        end = member.computed + member.remaining + 1
        holds, _ = width(numbers, lengths, member.computed)  # its last token counted
        padded = z3.If(asks > holds, asks - holds, 0) * lengths.block + end
        others.append(numbers.largest([round_up(numbers, lengths, end) + lengths.block, padded]))
    return Projected(own, others, to_the_end=True)


def release_0_8_0(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """vllm-spyre 0.7.0 to 0.8.0."""
    wider = newcomer.prompt - tkv
    zero = numbers.value(0)
    missing, _ = width(numbers, lengths, z3.If(wider > 0, wider - 1 + lengths.block, zero))
    base = tkv + missing * lengths.block
    own = base + newcomer.remaining
    return Projected(own, [base + member.remaining - member.prompt for member in decoding])


def release_1_10_0(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """vllm-spyre 1.3.0 to 1.10.0."""
    whole, _ = width(numbers, lengths, base_of(tkv, newcomer))
    own = realigned(numbers, lengths, newcomer.prompt, whole) + newcomer.remaining
    others = [
        realigned(numbers, lengths, member.computed, whole) + member.remaining
        for member in decoding
    ]
    return Projected(own, others)


def release_2_0_1(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """sendnn-inference 2.0.0 and 2.0.1."""
    base = base_of(tkv, newcomer)
    whole, _ = width(numbers, lengths, base)
    own = realigned(numbers, lengths, newcomer.prompt, whole) + newcomer.remaining
    return Projected(own, [base + member.remaining + lengths.block for member in decoding])


def release_2_1_0(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """sendnn-inference 2.1.0."""
    base = base_of(tkv, newcomer)
    whole, _ = width(numbers, lengths, base)
    own = realigned(numbers, lengths, newcomer.prompt, whole) + newcomer.remaining
    others = [round_up(numbers, lengths, base + member.remaining) for member in decoding]
    return Projected(round_up(numbers, lengths, own), others)


def release_2_1_2(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """sendnn-inference 2.1.1 and later."""
    rounded = release_2_1_0(numbers, lengths, tkv, decoding, newcomer)
    return with_slack(rounded, lengths.block)


def common_base(
    numbers: Numbers, lengths: Lengths, tkv: Any, decoding: list[Member], newcomer: Joining
) -> Projected:
    """Unreleased: projects every request from max(tkv, prompt), rounded up."""
    base = base_of(tkv, newcomer)
    own = round_up(numbers, lengths, base + newcomer.remaining)
    others = [round_up(numbers, lengths, base + member.remaining) for member in decoding]
    return Projected(own, others)


FORMULAS: dict[str, Formula] = {
    "document_own_tkv": document_own_tkv,
    "document_realigned": document_realigned,
    "document_max_tkv": document_max_tkv,
    "document_figure": document_figure,
    "0.8.0": release_0_8_0,
    "1.10.0": release_1_10_0,
    "2.0.1": release_2_0_1,
    "2.1.0": release_2_1_0,
    "2.1.2": release_2_1_2,
    "common_base": common_base,
}


def with_slack(projected: Projected, slack: Any) -> Projected:
    """The same with `slack` tokens more for every request."""
    own, others, to_the_end = projected
    return Projected(own + slack, [other + slack for other in others], to_the_end)


def formula_named(name: str) -> Formula:
    """The formula that `FORMULA` or `FORMULA+TOKENS` names.

    Raises:
        KeyError: there is none.
    """
    parts = split_slack(name)
    if parts is None:
        raise KeyError(name)
    formula, slack = parts
    return lambda *of: with_slack(FORMULAS[formula](*of), slack)


def accepts(
    numbers: Numbers, lengths: Lengths, projected: Projected, decoding: list[Member], limit: int
) -> list[Any]:
    """Facts that hold exactly if the walk of `model.spyre.volumetric.accepts` says yes.

    In ascending order the batch at a projection is all that are not below it; from equal ones the
    first, with the largest batch, decides. Products are split into cases: with m or more in the
    batch the projection is at most limit // m.
    """
    own, others, to_the_end = projected
    facts = []
    for member, tkv in zip(decoding, others, strict=True):
        batch = [
            z3.And(other.here, reached >= tkv)
            for other, reached in zip(decoding, others, strict=True)
        ]
        newcomer_too = numbers.count([own >= tkv]) if to_the_end else 1
        asked = member.here if to_the_end else z3.And(member.here, tkv < own)
        within = fits(lengths, newcomer_too + numbers.count(batch), len(others) + 1, tkv, limit)
        facts.append(z3.Implies(asked, within))
    outlive = [
        z3.And(member.here, tkv >= own) for member, tkv in zip(decoding, others, strict=True)
    ]
    if outlive or to_the_end:
        within = fits(lengths, 1 + numbers.count(outlive), len(others) + 1, own, limit)
        facts.append(within if to_the_end else z3.Implies(z3.Or(outlive), within))
    return facts


# Formulas by which the one that runs longer has no smaller term (lemma `ordered`).
ORDERED = frozenset(("document_max_tkv", "2.0.1", "2.1.0", "2.1.2", "common_base"))


def accepts_in_order(projected: Projected, limit: int) -> list[Any]:
    """The same walk for terms that ascend as given, every request being there: batches are known.

    Member i, or the newcomer if that has the smaller term, ends in a batch without the i before.
    """
    own, others, _ = projected
    all_requests = len(others) + 1
    return [
        z3.Or(tkv <= limit // (all_requests - before), own <= limit // (all_requests - before))
        for before, tkv in enumerate(others)
    ]


def within_length(
    numbers: Numbers,
    lengths: Lengths,
    tkv: Any,
    batch: list[tuple[Any, Any, Any]],
    newcomer: Joining,
    longest: Any,
) -> list[Any]:
    """Facts of `model.spyre.admission.fits_model_length`; `batch`: is it there at all, tokens
    computed, decode steps left."""
    whole, _ = width(numbers, lengths, base_of(tkv, newcomer))
    ends = [(z3.BoolVal(True), newcomer.prompt, newcomer.remaining), *batch]
    return [
        z3.Implies(there, realigned(numbers, lengths, tokens, whole) + left <= longest)
        for there, tokens, left in ends
    ]


def fits(lengths: Lengths, batch: Any, largest: int, tkv: Any, limit: int) -> Any:
    """batch x tkv is within the limit, without the product; the batch is at most `largest`."""
    return z3.And(
        [
            z3.Implies(batch >= size, tkv <= limit // size)
            for size in range(1, largest + 1)
            if lengths.longest is None or limit // size < lengths.longest
        ]
    )
