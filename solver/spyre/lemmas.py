"""Why a formula keeps the limit: lemmas about one request, or one pair, for any batch size.

The argument. Let T be the tkv of the batch when a newcomer with a prompt of P tokens joins, and
base = max(T, P). RU rounds up to whole blocks.

1. `length_within_tkv`: no member is longer than T, so nobody is longer than base.
2. `growth`: k decode steps later nobody is longer than base + k, nor is RU beyond RU(base + k).
3. `tkv_within_blocks`: so no tkv is beyond RU(base + k): a tkv ends in the widest member's blocks.
4. `covers_decoding`, `covers_newcomer`: the formula's term of a request that runs R more steps is
   at least RU(base + R).
5. `ordered`: of two decoding requests the one that runs longer has the larger term.
6. Counting. Take a step k while the newcomer runs, and the m requests that are active in it. If
   someone among them has a term below the newcomer's, let x be the one with the least: the walk
   asks for x, and by 5 all m are in the batch that it counts, so m x term(x) is within the limit;
   k is at most R(x), so by 3 and 4 tkv(k) is at most term(x). If nobody has, the walk stops at the
   newcomer and counts all m, so m x term(newcomer) is within the limit, and tkv(k) is at most that.
   Alone, a request is within the limit because the front door keeps prompt + max_tokens - 1 so.
   `counting` checks this argument with all terms arbitrary, at small sizes.
7. After the newcomer has left, the batch is part of the one before it joined, at the same lengths:
   what was within the limit then still is, since `fewer_is_less`: whoever leaves, early or not,
   raises nobody's tkv.

Each lemma has a guard: the same lemma with something taken away, which must be refuted.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from ..numbers import Numbers
from .formulas import FORMULAS, Joining, Lengths, Member, accepts, round_up, width


@dataclass(frozen=True)
class Obligation:
    """One lemma: `sentence` holds if `claim` has no solution; `guard` must have one."""

    name: str
    sentence: str
    claim: Callable[[], list[Any]]
    guard: Callable[[], list[Any]]


@dataclass(frozen=True)
class Discharged:
    """How an obligation ended: "proven", "refuted", "unknown" or "unguarded" (its guard holds,
    too, so that it says nothing)."""

    name: str
    sentence: str
    status: str
    seconds: float


def obligations(formula: str, block: int = 64) -> list[Obligation]:
    """Everything that has to be shown for `formula` at this block size, in the argument's order."""
    lengths = Lengths(block, None)
    return [
        Obligation(
            "length_within_tkv",
            "No member of the batch is longer than the batch's tkv.",
            lambda: _length_within_tkv(lengths, 0),
            lambda: _length_within_tkv(lengths, 1),
        ),
        Obligation(
            "growth",
            "Whoever is no longer than the base is, k steps on, within the base's blocks then.",
            lambda: _growth(lengths, 0),
            lambda: _growth(lengths, block),
        ),
        Obligation(
            "tkv_within_blocks",
            "A tkv ends within the blocks of the widest member.",
            lambda: _tkv_within_blocks(lengths, 0),
            lambda: _tkv_within_blocks(lengths, 1),
        ),
        Obligation(
            "covers_decoding",
            "The term of a decoding request covers the base's blocks for as long as it runs.",
            lambda: _covers_decoding(formula, lengths, 0),
            lambda: _covers_decoding(formula, lengths, 2 * block),
        ),
        Obligation(
            "covers_newcomer",
            "The term of the newcomer covers the base's blocks for as long as it runs.",
            lambda: _covers_newcomer(formula, lengths, 0),
            lambda: _covers_newcomer(formula, lengths, block),
        ),
        Obligation(
            "ordered",
            "Of two decoding requests the one that runs longer has no smaller term.",
            lambda: _ordered(formula, lengths, 0),
            lambda: _ordered(formula, lengths, 1),
        ),
        Obligation(
            "fewer_is_less",
            "Whoever leaves raises nobody's tkv.",
            lambda: _fewer_is_less(lengths, 0),
            lambda: _fewer_is_less(lengths, 1),
        ),
        *(
            Obligation(
                f"counting_{size}",
                f"With {size} decoding requests and any ordered terms the walk counts everyone.",
                lambda size=size: _counting(size, 0),  # type: ignore[misc]
                lambda size=size: _counting(size, 1),  # type: ignore[misc]
            )
            for size in (1, 2, 3, 4)
        ),
    ]


def discharge(formula: str, block: int = 64) -> Iterator[Discharged]:
    """Prove every obligation, each with its guard."""
    for one in obligations(formula, block):
        began = time.monotonic()
        solver = z3.Solver()
        solver.add(one.claim())
        answer = solver.check()
        status = "proven" if answer == z3.unsat else "refuted" if answer == z3.sat else "unknown"
        if status == "proven":
            guard = z3.Solver()
            guard.add(one.guard())
            against = guard.check()
            if against != z3.sat:
                status = "unguarded" if against == z3.unsat else "unknown"
        yield Discharged(one.name, one.sentence, status, time.monotonic() - began)


def _negated(numbers: Numbers, claim: Any) -> list[Any]:
    return [*numbers.facts, z3.Not(claim)]


def _length(numbers: Numbers, name: str, low: int = 1) -> Any:
    return numbers.fresh(name, low, None)


def _blocks(numbers: Numbers, lengths: Lengths, tokens: Any) -> Any:
    whole, _ = width(numbers, lengths, tokens - 1)
    return whole + 1


def _tkv(numbers: Numbers, lengths: Lengths, tokens: Any, widest: Any) -> Any:
    """tkv of a request in a batch that is `widest` blocks wide."""
    return (widest - _blocks(numbers, lengths, tokens)) * lengths.block + tokens


def _length_within_tkv(lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    own, widest = _length(numbers, "own"), _length(numbers, "widest")
    numbers.facts.append(widest >= _blocks(numbers, lengths, own))
    return _negated(numbers, own <= _tkv(numbers, lengths, own, widest) - less)


def _growth(lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    own, base, steps = (_length(numbers, name) for name in ("own", "base", "steps"))
    numbers.facts.append(own <= base)
    grown = round_up(numbers, lengths, own + steps)
    return _negated(numbers, grown <= round_up(numbers, lengths, base + steps) - less)


def _tkv_within_blocks(lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    own, widest = _length(numbers, "own"), _length(numbers, "widest")
    numbers.facts.append(widest >= _blocks(numbers, lengths, own))
    reached = _tkv(numbers, lengths, own, widest)
    return _negated(numbers, reached <= widest * lengths.block - less)


def _batch(numbers: Numbers, decoding: int) -> tuple[Any, list[Member], Joining]:
    """The tkv of a batch, members no longer than it, and a newcomer."""
    tkv = _length(numbers, "tkv")
    members = []
    for _ in range(decoding):
        computed, own = _length(numbers, "computed"), _length(numbers, "own_tkv")
        remaining = _length(numbers, "remaining")
        numbers.facts += [computed <= own, own <= tkv]
        members.append(Member(z3.BoolVal(True), computed, remaining, own))
    return tkv, members, Joining(_length(numbers, "prompt"), _length(numbers, "remaining", 0))


def _covers_decoding(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    tkv, members, newcomer = _batch(numbers, 1)
    _, [term] = FORMULAS[formula](numbers, lengths, tkv, members, newcomer)
    base = z3.If(newcomer.prompt > tkv, newcomer.prompt, tkv)
    due = round_up(numbers, lengths, base + members[0].remaining)
    return _negated(numbers, term - less >= due)


def _covers_newcomer(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    tkv, members, newcomer = _batch(numbers, 1)
    term, _ = FORMULAS[formula](numbers, lengths, tkv, members, newcomer)
    base = z3.If(newcomer.prompt > tkv, newcomer.prompt, tkv)
    due = round_up(numbers, lengths, base + newcomer.remaining)
    return _negated(numbers, term - less >= due)


def _ordered(formula: str, lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    tkv, members, newcomer = _batch(numbers, 2)
    _, [short, long] = FORMULAS[formula](numbers, lengths, tkv, members, newcomer)
    numbers.facts.append(members[0].remaining <= members[1].remaining)
    return _negated(numbers, short <= long - less)


def _fewer_is_less(lengths: Lengths, less: int) -> list[Any]:
    numbers = Numbers()
    own, before, after = (_length(numbers, name) for name in ("own", "before", "after"))
    numbers.facts += [before >= after, after >= _blocks(numbers, lengths, own)]
    now = _tkv(numbers, lengths, own, after)
    return _negated(numbers, now <= _tkv(numbers, lengths, own, before) - less)


def _counting(size: int, beyond: int) -> list[Any]:
    """Any terms, limit and tkv: the m active fit m times, if every active term covers the tkv."""
    limit = 12  # products are split into cases, so the limit is a number; terms are up to twice it
    numbers = Numbers()
    lengths = Lengths(1, 4 * limit)
    terms = [numbers.fresh("term", 1, 2 * limit) for _ in range(size)]
    lefts = [numbers.fresh("left", 1, 2 * limit) for _ in range(size)]
    own, left = numbers.fresh("own", 1, 2 * limit), numbers.fresh("own_left", 0, 2 * limit)
    step, tkv = numbers.fresh("step", 1, 2 * limit), numbers.fresh("tkv", 1, 2 * limit)
    members = [Member(z3.BoolVal(True), None, other, None) for other in lefts]
    numbers.facts += accepts(numbers, lengths, (own, terms), members, limit)
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
