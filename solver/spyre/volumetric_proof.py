"""Why a formula keeps the limit: lemmas about one request, or one pair, for any batch size.

The argument. Let T be the tkv of the batch when a newcomer with a prompt of P tokens joins, and
base = max(T, P). RU rounds up to whole blocks.

1. `length_within_tkv`: no member is longer than T, so no request is longer than base.
2. `growth`: k decode steps later no request is longer than base + k, nor is RU beyond RU(base + k).
3. `tkv_within_blocks`: so no tkv is beyond RU(base + k): a tkv ends in the widest member's blocks.
4. `covers_decoding`, `covers_newcomer`: the formula's term of a request that runs R more steps is
   at least RU(base + R).
5. `ordered`: of two decoding requests the one that runs longer has the larger term.
6. Counting. Take a step k while the newcomer runs, and the m requests that are active in it. If
   a request among them has a term below the newcomer's, let x be the one with the least: the walk
   asks for x, and by 5 all m are in the batch that it counts, so m x term(x) is within the limit;
   k is at most R(x), so by 3 and 4 tkv(k) is at most term(x). If no request has, the walk stops at
   the newcomer and counts all m, so m x term(newcomer) is within the limit, and tkv(k) is at most
   that. Alone, a request is within the limit because the front door keeps prompt + max_tokens - 1
   so. `counting` checks this argument with all terms arbitrary, at small sizes.
7. After the newcomer has left, the batch is part of the one before it joined, at the same lengths:
   what was within the limit then still is, since `fewer_is_less`: a request that leaves, early or
   not, raises no request's tkv.

Each lemma has a guard: the same lemma, about a formula that gives less, which must be refuted.
"""

from functools import partial
from typing import Any

import z3

from ..numbers import Numbers, negated
from ..obligation import Obligation
from .formulas import Joining, Lengths, Member, Projected, accepts, base_of, formula_named, round_up
from .symbols import blocks, length, lengths_of, make_numbers, own_tkv


def obligations(formula: str, block: int | None = 64) -> list[Obligation]:
    """Everything that has to be shown for `formula`, in the argument's order.

    `block`: tokens of a block; None: of any size, by symbols.
    """
    lengths = lengths_of(block)
    return [
        Obligation(
            "length_within_tkv",
            "No member of the batch is longer than the batch's tkv.",
            lambda: _length_within_tkv(lengths, 0),
            lambda: _length_within_tkv(lengths, 1),
        ),
        Obligation(
            "growth",
            "After k steps, a request no longer than the base fits in the base's blocks.",
            lambda: _growth(lengths, 0),
            lambda: _growth(lengths, 1),
        ),
        tkv_within_blocks(lengths),
        Obligation(
            "covers_decoding",
            "The term of a decoding request covers the base's blocks for as long as it runs.",
            lambda: _covers_decoding(formula, lengths, 0),
            # 2.1.2 gives requests that decode a block that the argument does not need.
            lambda: _covers_decoding(formula, lengths, lengths.block + 1),
        ),
        Obligation(
            "covers_newcomer",
            "The term of the newcomer covers the base's blocks for as long as it runs.",
            lambda: _covers_newcomer(formula, lengths, 0),
            lambda: _covers_newcomer(formula, lengths, 1),
        ),
        Obligation(
            "ordered",
            "Of two decoding requests the one that runs longer has no smaller term.",
            lambda: _ordered(formula, lengths, 0),
            lambda: _ordered(formula, lengths, 1),
        ),
        fewer_is_less(lengths),
        *(
            Obligation(
                f"counting_{decoding}",
                f"The walk counts each of {decoding} decoding requests, whatever their terms.",
                partial(_counting, decoding, 0),
                partial(_counting, decoding, 1),
            )
            for decoding in (1, 2, 3, 4)
        ),
    ]


def tkv_within_blocks(lengths: Lengths) -> Obligation:
    """For every check."""
    return Obligation(
        "tkv_within_blocks",
        "A tkv ends within the blocks of the widest member.",
        lambda: _tkv_within_blocks(lengths, 0),
        lambda: _tkv_within_blocks(lengths, 1),
    )


def fewer_is_less(lengths: Lengths) -> Obligation:
    """For every check."""
    return Obligation(
        "fewer_is_less",
        "A request that leaves raises no request's tkv.",
        lambda: _fewer_is_less(lengths, 0),
        lambda: _fewer_is_less(lengths, 1),
    )


def _length_within_tkv(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    numbers.facts.append(widest >= blocks(numbers, lengths, own))
    return negated(numbers, own <= own_tkv(numbers, lengths, own, widest) - less)


def _growth(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, base, steps = (length(numbers, name) for name in ("own", "base", "steps"))
    numbers.facts.append(own <= base)
    grown = round_up(numbers, lengths, own + steps)
    return negated(numbers, grown <= round_up(numbers, lengths, base + steps) - less)


def _tkv_within_blocks(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, widest = length(numbers, "own"), length(numbers, "widest")
    numbers.facts.append(widest >= blocks(numbers, lengths, own))
    reached = own_tkv(numbers, lengths, own, widest)
    return negated(numbers, reached <= widest * lengths.block - less)


def _batch(numbers: Numbers, decoding: int) -> tuple[Any, list[Member], Joining]:
    """The tkv of a batch, members no longer than it, and a newcomer."""
    tkv = length(numbers, "tkv")
    members = []
    for _ in range(decoding):
        computed, own = length(numbers, "computed"), length(numbers, "own_tkv")
        remaining = length(numbers, "remaining")
        prompt = length(numbers, "prompt")
        numbers.facts += [prompt <= computed, computed <= own, own <= tkv]
        members.append(Member(z3.BoolVal(True), computed, remaining, own, prompt))
    return tkv, members, Joining(length(numbers, "prompt"), length(numbers, "remaining", 0))


def _covers_decoding(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    tkv, members, newcomer = _batch(numbers, 1)
    [term] = formula_named(formula)(numbers, lengths, tkv, members, newcomer).decoding
    due = round_up(numbers, lengths, base_of(tkv, newcomer) + members[0].remaining)
    return negated(numbers, term - less >= due)


def _covers_newcomer(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    tkv, members, newcomer = _batch(numbers, 1)
    term = formula_named(formula)(numbers, lengths, tkv, members, newcomer).newcomer
    due = round_up(numbers, lengths, base_of(tkv, newcomer) + newcomer.remaining)
    return negated(numbers, term - less >= due)


def _ordered(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    tkv, members, newcomer = _batch(numbers, 2)
    [short, long] = formula_named(formula)(numbers, lengths, tkv, members, newcomer).decoding
    numbers.facts.append(members[0].remaining <= members[1].remaining)
    return negated(numbers, short <= long - less)


def _fewer_is_less(lengths: Lengths, less: int) -> list[Any]:
    numbers = make_numbers(lengths)
    own, before, after = (length(numbers, name) for name in ("own", "before", "after"))
    numbers.facts += [before >= after, after >= blocks(numbers, lengths, own)]
    now = own_tkv(numbers, lengths, own, after)
    return negated(numbers, now <= own_tkv(numbers, lengths, own, before) - less)


def _counting(size: int, beyond: int) -> list[Any]:
    """Any terms, limit and tkv: the m active fit m times, if every active term covers the tkv."""
    limit = 12  # products are split into cases, so the limit is a number; terms are up to twice it
    numbers = Numbers()
    lengths = Lengths(1, 4 * limit)
    terms = [numbers.fresh("term", 1, 2 * limit) for _ in range(size)]
    lefts = [numbers.fresh("left", 1, 2 * limit) for _ in range(size)]
    own, left = numbers.fresh("own", 1, 2 * limit), numbers.fresh("own_left", 0, 2 * limit)
    step, tkv = numbers.fresh("step", 1, 2 * limit), numbers.fresh("tkv", 1, 2 * limit)
    members = [Member(z3.BoolVal(True), None, other, None, None) for other in lefts]
    numbers.facts += accepts(numbers, lengths, Projected(own, terms), members, limit)
    for term, other in zip(terms, lefts, strict=True):
        numbers.facts += [
            z3.Implies(lesser <= other, lower <= term)
            for lower, lesser in zip(terms, lefts, strict=True)
        ]
        numbers.facts.append(z3.Implies(other >= step, tkv <= term))
    active = [other >= step for other in lefts]
    numbers.facts += [left >= step, tkv <= own, z3.Or(active)]
    batch = 1 + numbers.count(active)
    return [
        *numbers.facts,
        z3.Or([z3.And(batch >= m, tkv + beyond > limit // m) for m in range(1, size + 2)]),
    ]
