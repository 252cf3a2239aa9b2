"""The volumetric check takes every request into account (`argument.md`, steps 4 and 5).

A check is the function that the scheduler calls to accept a newcomer: a formula with its walk over
the batch, or a function of `model.spyre.peak`. `step_lemmas` proves that the scheduler calls it.
Here the check runs on symbols, with a given number of decoding requests and with versions of `len`,
`max` and `sorted` that do not branch (`smt.on_symbols`). Symbols replace the formula's values and
the largest tkv where another lemma covers these.
"""

from functools import partial
from itertools import pairwise
from typing import Any, cast

import z3

from ...model.spyre import volumetric
from ...model.spyre.state import Sequence as Request
from ...model.spyre.volumetric import Check
from ..smt.execution import (
    BeyondPrefixError,
    Prefix,
    SymbolicRun,
    UndecidedError,
    bare,
    condition,
    count_as_more,
    holds_on,
    paths,
    stubs,
)
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from .symbolic_admission import LARGE, MANY, Lengths, length, round_up

LOOKS_AHEAD = "looks at a term before the walk has compared all earlier ones"
FIRST = 5  # the number of decoding requests that the walk visits, however many there are
# Tokens. `walk_counts_every_request` does not mention blocks, so it holds for every block size.
BLOCK = 64


def walk_counts_every_request(size: int | None) -> Obligation:
    """Return the lemma for `size` requests.

    None means any number of requests. The walk then stops within the first few.
    """
    about = f"({size})" if size else f"(any number), while it goes through the first {FIRST}"
    return Obligation(
        f"walk_counts_every_request_{size or 'any'}",
        f"The walk counts each decoding request {about}.",
        partial(_walk_counts_every_request, size, 0),
        partial(_walk_counts_every_request, size, 1),
    )


def request(number: int, **more: Any) -> Request:
    """Return a request of the model. Fields that are not given do not matter for the lemma."""
    return Request(**{"id": str(number), "prompt": 1, "max_tokens": 1, "output_len": 1, **more})


class SeveralDecoding(volumetric.Decoding):
    """A batch member that represents several members; loops visit it only once."""

    counts_more: Any = 0


def several(member: volumetric.Decoding, more: Any) -> volumetric.Decoding:
    made = SeveralDecoding(*(count_as_more(number, more) for number in member))
    made.counts_more = more
    return made


def _walk_counts_every_request(size: int | None, beyond: int) -> list[Any]:
    """Claim, for any terms, limit and tkv, that the active requests fit together if every active
    term covers the tkv."""
    numbers = Numbers()
    limit, own, own_left, step, tkv = (
        length(numbers, name) for name in ("limit", "own", "own_left", "step", "tkv")
    )
    terms = [length(numbers, "term") for _ in range(size or FIRST)]
    if size == LARGE:  # the smaller sizes show that the walk sorts
        numbers.facts += [term <= larger for term, larger in pairwise(terms)]
    lefts = [length(numbers, "left") for _ in terms]
    count, compared, answer = length(numbers, "members", 0), list[Any](), volumetric.answer_at

    def code(run: SymbolicRun) -> Any:
        known = [run.number(term) for term in terms]
        decoding = Prefix(known, run.number(count)) if size is None else known
        projection = volumetric.Projection(run.number(own), cast(list[int], decoding))

        def answer_at(term: Any, to_come: Any, *others: Any) -> bool | None:
            compared.append((bare(term), bare(to_come)))
            return answer(term, to_come, *others)

        in_order, before = {"sorted": list} if size == LARGE else {}, len(compared)
        try:
            with on_symbols(volumetric), stubs(volumetric, answer_at=answer_at, **in_order):
                return volumetric.accepts(projection, run.number(limit))
        except BeyondPrefixError:
            if len(compared) - before < len(terms):
                raise UndecidedError(LOOKS_AHEAD) from None
            raise

    taken = list(paths(numbers, code, quick=True))
    for term, left in zip(terms, lefts, strict=True):
        numbers.facts.append(z3.Implies(left >= step, tkv <= term))
    walked = [size is not None or count > at for at in range(len(terms))]
    active = [
        z3.And(left >= step, is_walked) for left, is_walked in zip(lefts, walked, strict=True)
    ]
    others = z3.IntVal(0)  # active requests besides the known ones; their terms are larger
    if size is None:
        others = length(numbers, "others", 0)
        numbers.facts.append(others <= z3.If(count > FIRST, count - FIRST, 0))
    numbers.facts += [own_left >= step, tkv <= own]
    batch = 1 + numbers.count(active) + others
    if size is None:  # products of symbols, which Z3 is slow to compare
        numbers.facts += [
            z3.Implies(z3.And(batch <= to_come, tkv <= term), batch * tkv <= to_come * term)
            for reached, to_come in compared
            for term in (own, reached)
        ]
    if size is None and beyond:  # one solution is enough, and without products it is found at once
        numbers.facts += [number == BLOCK for number in (*terms, own, tkv)]
    within = z3.Implies(batch > 1, batch * (tkv + beyond) <= limit)
    if size == LARGE:  # Z3 decides faster without a product of symbols
        batches = range(2, size + 2)
        fit = [z3.Implies(batch >= many, many * (tkv + beyond) <= limit) for many in batches]
        within = z3.And(fit)
    return holds_on(numbers, taken, lambda accepted: z3.Or(z3.BoolVal(not accepted), within))


@lemma(
    "The check gives the walk the limit and, for the newcomer and each decoding request "
    "({size}), a term that covers it; it accepts only if the walk does.",
    name="formula_projects_every_member_{size}",
)
def formula_projects_every_member(check: Check, block: int, size: int, more: int) -> list[Any]:
    """Claim that each term covers the blocks of the base for as long as its request runs
    (`covers_decoding`), and that the check accepts only if the walk does."""
    numbers, lengths = Numbers(), Lengths(block, None)
    tkv, prompt, limit, tokens = (
        length(numbers, name) for name in ("tkv", "prompt", "limit", "tokens")
    )
    members = [
        volumetric.Decoding(*(length(numbers, name) for name in ("has", "left", "own", "prompt")))
        for _ in range(size)
    ]
    for member in members:
        numbers.facts += [member.prompt <= member.computed, member.computed <= member.tkv]
        numbers.facts.append(member.computed <= tkv)
    says, more_members = z3.Bool("says"), length(numbers, "more members", 0)

    def code(run: SymbolicRun) -> Any:
        walked = []

        def walk(projection: Any, most: Any) -> bool:
            walked.append((projection, most))
            return run.answer(says)

        number = run.number
        symbols = [volumetric.Decoding(*map(number, member)) for member in members]
        if size == MANY:
            symbols[-1] = several(symbols[-1], number(more_members))
        newcomer = volumetric.Newcomer(*map(number, (prompt, tokens)))
        with on_symbols(volumetric), stubs(volumetric, accepts=walk):
            answer = check(symbols, newcomer, block, number(limit), number(tkv))
        return walked, bool(answer)

    taken = list(paths(numbers, code, quick=True))
    base = z3.If(prompt > tkv, prompt, tkv)
    due = [
        round_up(numbers, lengths, base + left)
        for left in (tokens - 1, *(member.remaining for member in members))
    ]

    def right(result: Any) -> Any:
        walked, answer = result
        if not answer:  # if the check refuses, even before the walk, no request joins
            return z3.BoolVal(True)
        if len(walked) != 1 or len(walked[0][0].decoding) != size:
            return z3.BoolVal(False)
        [(projection, most)] = walked
        terms = [bare(projection.newcomer), *map(bare, projection.decoding)]
        covered = [term >= least for term, least in zip(terms, due, strict=True)]
        stops = z3.Not(condition(projection.to_the_end))
        return z3.And(says, stops, bare(most) == limit + more, *covered)

    return holds_on(numbers, taken, right)
