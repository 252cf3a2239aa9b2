"""The model's volumetric formulas, their walk, and the peak checks, on symbols.

The terms of the formulas are computed by the model's own code (`model.spyre.volumetric`). The walk
and the checks of `model.spyre.peak` are written a second time for Z3, and tests compare them with
the model on concrete numbers. At the end of each request, the checks look at every request: whether
it is active, how long it is, and where in its last block it ends.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import z3

from ...model.spyre import volumetric as model
from ..smt.execution import SymbolicRun, merged
from ..smt.numbers import Numbers

MANY = 5  # decoding requests, one of which represents any number of them
LARGE = 32  # the default of max_num_seqs; with this many, no request ends or is aborted
# the numbers of decoding requests with which the model's code runs
SIZES = (0, 1, 2, 3, 4, MANY, LARGE)


class Lengths(NamedTuple):
    """The block size and the bound on lengths that all formulas use.

    Attributes:
        block: the size of a block in tokens, a number or a symbol.
        longest: an upper bound in tokens on every length; None if none is known.
    """

    block: Any
    longest: int | None


class Member(NamedTuple):
    """A decoding request: whether it is present, its computed tokens, its remaining decode steps,
    its own tkv, and the tokens of its prompt."""

    present: Any
    computed: Any
    remaining: Any
    tkv: Any
    prompt: Any


class Joining(NamedTuple):
    """The newcomer: its prompt in tokens, and the decode steps that it can run."""

    prompt: Any
    remaining: Any


class Projected(NamedTuple):
    """The largest tkv that each request can still reach. The fields are named as in the model."""

    newcomer: Any
    decoding: list[Any]
    to_the_end: bool = False


Formula = Callable[[Numbers, Lengths, Any, list[Member], Joining], Projected]


def width(numbers: Numbers, lengths: Lengths, tokens: Any) -> tuple[Any, Any]:
    """Return the number of whole blocks in `tokens`, and the number of tokens left over. `tokens`
    must not be negative."""
    return numbers.split(tokens, lengths.block, None)


# The arithmetic below belongs to the lemmas. If the lemmas used the model's functions, a wrong
# change of one would change a claim and the code in the same way, and go unnoticed.


def round_up(numbers: Numbers, lengths: Lengths, tokens: Any) -> Any:
    block = lengths.block
    return merged(numbers, lambda run: ((run.number(tokens) - 1) // block + 1) * block)


def realigned(numbers: Numbers, lengths: Lengths, tokens: Any, whole: Any) -> Any:
    """Return the position of a member whose last block moves to block `whole` (SPY-R46)."""
    block = lengths.block
    return merged(numbers, lambda run: run.number(whole) * block + run.number(tokens) % block)


def base_of(tkv: Any, newcomer: Joining) -> Any:
    return z3.If(newcomer.prompt > tkv, newcomer.prompt, tkv)


def formula_named(name: str) -> Formula:
    formula = model.formula_named(name)
    if formula is None:
        raise KeyError(name)
    return partial(projected, formula)


def projected(
    formula: model.Formula,
    numbers: Numbers,
    lengths: Lengths,
    tkv: Any,
    decoding: list[Member],
    newcomer: Joining,
) -> Projected:
    """Return the formula's projections of newcomer and members, whichever path its code takes."""
    base, block = base_of(tkv, newcomer), lengths.block

    def own(run: SymbolicRun) -> Any:
        at = run.number(tkv), run.number(base), run.number(newcomer.prompt)
        return formula.newcomer(*at, run.number(newcomer.remaining), block) + formula.slack

    def other(member: Member, run: SymbolicRun) -> Any:
        at = run.number(tkv), run.number(base), run.number(newcomer.prompt)
        decoding = model.Decoding(*(run.number(number) for number in member[1:]))
        return formula.member(max, *at, decoding, block) + formula.slack

    others = [merged(numbers, partial(other, member)) for member in decoding]
    return Projected(merged(numbers, own), others, formula.to_the_end)


def accepts(
    numbers: Numbers, lengths: Lengths, projected: Projected, decoding: list[Member], limit: int
) -> list[Any]:
    """Return facts that hold if and only if the walk of `model.spyre.volumetric.accepts` accepts.

    The walk visits the projections in ascending order, and its batch shrinks by one request at
    each. If several projections are equal, only the first matters, because all of them are still in
    its batch. Therefore, the batch at a projection consists here of all requests whose projection
    is not lower. To avoid products, the limit is checked by cases: with m or more requests in the
    batch, the projection is at most limit // m.
    """
    own, others, to_the_end = projected
    lengths = lengths._replace(longest=None)  # a projection may exceed every possible length
    facts = []
    for member, tkv in zip(decoding, others, strict=True):
        batch = [
            z3.And(other.present, reached >= tkv)
            for other, reached in zip(decoding, others, strict=True)
        ]
        newcomer_too = numbers.count([own >= tkv]) if to_the_end else 1
        compared = member.present if to_the_end else z3.And(member.present, tkv < own)
        within = fits(lengths, newcomer_too + numbers.count(batch), len(others) + 1, tkv, limit)
        facts.append(z3.Implies(compared, within))
    outlive = [
        z3.And(member.present, tkv >= own) for member, tkv in zip(decoding, others, strict=True)
    ]
    if outlive or to_the_end:
        within = fits(lengths, 1 + numbers.count(outlive), len(others) + 1, own, limit)
        facts.append(within if to_the_end else z3.Implies(z3.Or(outlive), within))
    return facts


def within_length(
    numbers: Numbers,
    lengths: Lengths,
    tkv: Any,
    batch: list[tuple[Any, Any, Any]],
    newcomer: Joining,
    longest: Any,
) -> list[Any]:
    """Return the facts that `model.spyre.documented.fits_model_length` checks.

    `batch` lists, for each request, whether it is present, its computed tokens and its remaining
    decode steps.
    """
    whole, _ = width(numbers, lengths, base_of(tkv, newcomer))
    ends = [(z3.BoolVal(True), newcomer.prompt, newcomer.remaining), *batch]
    return [
        z3.Implies(present, realigned(numbers, lengths, tokens, whole) + steps_left <= longest)
        for present, tokens, steps_left in ends
    ]


def fits(lengths: Lengths, batch: Any, largest: int, tkv: Any, limit: Any) -> Any:
    if not isinstance(limit, int):
        return z3.And(
            [z3.Implies(batch >= size, size * tkv <= limit) for size in range(1, largest + 1)]
        )
    return z3.And(
        [
            z3.Implies(batch >= size, tkv <= limit // size)
            for size in range(1, largest + 1)
            if lengths.longest is None or limit // size < lengths.longest
        ]
    )


def make_numbers(lengths: Lengths) -> Numbers:
    """Return a new set of unbounded numbers. A symbolic block size is at least 1."""
    numbers = Numbers()
    if not isinstance(lengths.block, int):
        numbers.facts.append(lengths.block >= 1)
    return numbers


def lengths_of(block: int | None) -> Lengths:
    """Return lengths in blocks of `block` tokens. None means any size, as a symbol."""
    return Lengths(z3.Int("block") if block is None else block, None)


def length(numbers: Numbers, name: str, low: int = 1) -> Any:
    return numbers.fresh(name, low)


def blocks(numbers: Numbers, lengths: Lengths, tokens: Any) -> Any:
    """Return the number of blocks that `tokens` tokens need (at least one token)."""
    whole, _ = width(numbers, lengths, tokens - 1)
    return whole + 1


def own_tkv(numbers: Numbers, lengths: Lengths, tokens: Any, widest: Any) -> Any:
    """Return the tkv of a request in a batch that is `widest` blocks wide."""
    return (widest - blocks(numbers, lengths, tokens)) * lengths.block + tokens


def own_tkvs(numbers: Numbers, lengths: Lengths, tokens: Sequence[Any]) -> list[Any]:
    widest = numbers.extreme([blocks(numbers, lengths, each) for each in tokens])
    return [own_tkv(numbers, lengths, each, widest) for each in tokens]


Check = Callable[[Numbers, Lengths, list[Member], Joining, int], list[Any]]


class End(NamedTuple):
    """The step in which a request ends.

    Attributes:
        counts: whether the newcomer is still active in that step; otherwise the step does not
            matter.
        step: its number, from 1.
        active: for each request, whether it still decodes.
        before: for each request, the number of blocks before its last one.
        offset: for each request, the number of tokens in its last block, from 1 to the block size.
        widest: the largest `before` of the active requests.
    """

    counts: Any
    step: Any
    active: list[Any]
    before: list[Any]
    offset: list[Any]
    widest: Any


def ends(
    numbers: Numbers, lengths: Lengths, decoding: list[Member], newcomer: Joining
) -> Iterator[End]:
    own = Member(z3.BoolVal(True), newcomer.prompt, newcomer.remaining, None, None)
    all_requests = [*decoding, own]
    zero = z3.IntVal(0)
    for request in all_requests:
        step = request.remaining
        active = [z3.And(other.present, other.remaining >= step) for other in all_requests]
        before, offset = [], []
        for other in all_requests:
            # An absent request may have any numbers that are not negative.
            tokens = z3.If(z3.And(other.present, step >= 1), other.computed + step - 1, zero)
            whole, rest = width(numbers, lengths, tokens)
            before.append(whole)
            offset.append(rest + 1)
        widest = numbers.largest(
            [z3.If(is_active, whole, zero) for is_active, whole in zip(active, before, strict=True)]
        )
        counts = z3.And(request.present, step >= 1, step <= newcomer.remaining)
        yield End(counts, step, active, before, offset, widest)


def rounded(
    numbers: Numbers, lengths: Lengths, decoding: list[Member], newcomer: Joining, limit: int
) -> list[Any]:
    """Return facts that hold if the volume is within the limit whenever a request ends. The volume
    is the number of active requests times the width of the widest one in whole blocks."""
    facts = []
    for end in ends(numbers, lengths, decoding, newcomer):
        full = (end.widest + 1) * lengths.block
        batch = numbers.count(end.active)
        facts.append(z3.Implies(end.counts, fits(lengths, batch, len(end.active), full, limit)))
    return facts


def exact(
    numbers: Numbers, lengths: Lengths, decoding: list[Member], newcomer: Joining, limit: int
) -> list[Any]:
    """Return facts that hold if the volume is within the limit in each step in which a request
    ends, and in the last step before that in which some request fills a block."""
    facts = []
    for end in ends(numbers, lengths, decoding, newcomer):
        batch = numbers.count(end.active)
        zero = z3.IntVal(0)
        last = end.widest * lengths.block + numbers.largest(
            [
                z3.If(is_active, rest, zero)
                for is_active, rest in zip(end.active, end.offset, strict=True)
            ]
        )
        facts.append(z3.Implies(end.counts, fits(lengths, batch, len(end.active), last, limit)))
        full = (end.widest + 1) * lengths.block
        filled = z3.And(end.counts, _fills_block_of_the_widest(numbers, lengths, end))
        facts.append(z3.Implies(filled, fits(lengths, batch, len(end.active), full, limit)))
    return facts


CHECKS: dict[str, Check] = {"exact": exact, "rounded": rounded}


def accepted_by(
    name: str,
    numbers: Numbers,
    lengths: Lengths,
    tkv: Any,
    decoding: list[Member],
    newcomer: Joining,
    limit: int,
) -> list[Any]:
    """Return facts that hold if and only if the named check, one of `CHECKS` or a formula, accepts.

    Raise KeyError if there is no such check.
    """
    if name in CHECKS:
        return CHECKS[name](numbers, lengths, decoding, newcomer, limit)
    projected = formula_named(name)(numbers, lengths, tkv, decoding, newcomer)
    return accepts(numbers, lengths, projected, decoding, limit)


def _fills_block_of_the_widest(numbers: Numbers, lengths: Lengths, end: End) -> Any:
    """Return whether a request fills a block after the widest request has begun its last block.

    The tkv is then the end of that block. `back` is the number of steps from then to the end. A
    request at offset o filled its previous block o steps ago.
    """
    back = numbers.fresh("back", 0, lengths.block - 1)
    turned = [z3.If(rest == lengths.block, z3.IntVal(0), rest) for rest in end.offset]
    numbers.facts += [
        z3.Implies(active, back <= steps) for active, steps in zip(end.active, turned, strict=True)
    ]
    pairs = list(zip(end.active, turned, strict=True))
    none_active = z3.Not(z3.Or(end.active))
    numbers.facts.append(
        z3.Or(none_active, *(z3.And(active, back == steps) for active, steps in pairs))
    )
    in_the_last = [
        z3.And(active, whole == end.widest, rest > back)
        for active, whole, rest in zip(end.active, end.before, end.offset, strict=True)
    ]
    return z3.And(end.step - back >= 1, z3.Or(in_the_last))
