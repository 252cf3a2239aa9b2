"""The checks of `model.spyre.peak` on symbolic numbers: no estimate, or one by whole blocks.

Name by name the same; `tests/solver` compares them on concrete numbers. Every request is looked at
when a request ends: which requests are active then, how long they are, where in their last block.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import z3

from ..smt.numbers import Numbers
from .formulas import Joining, Lengths, Member, accepts, fits, formula_named, width

Check = Callable[[Numbers, Lengths, list[Member], Joining, int], list[Any]]


class End(NamedTuple):
    """The step in which a request ends, if the newcomer is still there (`asked`).

    `step` counts from 1; `active`, `before` and `offset` are of each request: still there, whole
    blocks before its last one, tokens in that one (1 to a block); `widest` is the largest
    `before` of those still there.
    """

    asked: Any
    step: Any
    active: list[Any]
    before: list[Any]
    offset: list[Any]
    widest: Any


def ends(
    numbers: Numbers, lengths: Lengths, decoding: list[Member], newcomer: Joining
) -> Iterator[End]:
    """Every request's last step."""
    own = Member(z3.BoolVal(True), newcomer.prompt, newcomer.remaining, None, None)
    all_requests = [*decoding, own]
    zero = numbers.value(0)
    for one in all_requests:
        step = one.remaining
        active = [z3.And(other.here, other.remaining >= step) for other in all_requests]
        before, offset = [], []
        for other in all_requests:
            # A request that is not there may have any numbers, but no negative ones.
            tokens = z3.If(z3.And(other.here, step >= 1), other.computed + step - 1, zero)
            whole, rest = width(numbers, lengths, tokens)
            before.append(whole)
            offset.append(rest + 1)
        widest = numbers.largest(
            [z3.If(there, whole, zero) for there, whole in zip(active, before, strict=True)]
        )
        asked = z3.And(one.here, step >= 1, step <= newcomer.remaining)
        yield End(asked, step, active, before, offset, widest)


def rounded(
    numbers: Numbers, lengths: Lengths, decoding: list[Member], newcomer: Joining, limit: int
) -> list[Any]:
    """At each end: the requests still there times the blocks of the widest are within the limit."""
    facts = []
    for end in ends(numbers, lengths, decoding, newcomer):
        full = (end.widest + 1) * lengths.block
        batch = numbers.count(end.active)
        facts.append(z3.Implies(end.asked, fits(lengths, batch, len(end.active), full, limit)))
    return facts


def exact(
    numbers: Numbers, lengths: Lengths, decoding: list[Member], newcomer: Joining, limit: int
) -> list[Any]:
    """At each end, and at the last step before it at which a request fills a block."""
    facts = []
    for end in ends(numbers, lengths, decoding, newcomer):
        batch = numbers.count(end.active)
        zero = numbers.value(0)
        last = end.widest * lengths.block + numbers.largest(
            [z3.If(there, rest, zero) for there, rest in zip(end.active, end.offset, strict=True)]
        )
        facts.append(z3.Implies(end.asked, fits(lengths, batch, len(end.active), last, limit)))
        full = (end.widest + 1) * lengths.block
        filled = z3.And(end.asked, _fills_block_of_the_widest(numbers, lengths, end))
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
    """Facts that hold exactly if the check of that name says yes: one of these, or a formula.

    Raises:
        KeyError: there is none.
    """
    if name in CHECKS:
        return CHECKS[name](numbers, lengths, decoding, newcomer, limit)
    projected = formula_named(name)(numbers, lengths, tkv, decoding, newcomer)
    return accepts(numbers, lengths, projected, decoding, limit)


def _fills_block_of_the_widest(numbers: Numbers, lengths: Lengths, end: End) -> Any:
    """A request fills a block while the widest is in the block that it is in at the end.

    Then the tkv is the end of that block. `back` is how many steps before the end that is; a
    request at offset o filled its block before that one o steps ago.
    """
    back = numbers.fresh("back", 0, lengths.block - 1)
    turned = [z3.If(rest == lengths.block, numbers.value(0), rest) for rest in end.offset]
    numbers.facts += [
        z3.Implies(there, back <= steps) for there, steps in zip(end.active, turned, strict=True)
    ]
    pairs = list(zip(end.active, turned, strict=True))
    none_there = z3.Not(z3.Or(end.active))
    numbers.facts.append(
        z3.Or(none_there, *(z3.And(there, back == steps) for there, steps in pairs))
    )
    in_the_last = [
        z3.And(there, whole == end.widest, rest > back)
        for there, whole, rest in zip(end.active, end.before, end.offset, strict=True)
    ]
    return z3.And(end.step - back >= 1, z3.Or(in_the_last))
