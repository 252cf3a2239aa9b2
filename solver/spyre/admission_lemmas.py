"""The volumetric check takes every request into account (`argument.md`, steps 4 and 5).

A check is what `step_lemmas` has the scheduler ask: a formula with its walk, or one of
`model.spyre.peak`. Here it runs on symbols beside so many decoding requests, `len`, `max` and
`sorted` without branches (`smt.builtins`). What the formula or the largest tkv say is replaced
where another lemma is about it.
"""

from functools import partial
from typing import Any, cast

import z3

from ...model.spyre import volumetric
from ...model.spyre.state import Sequence as Request
from ...model.spyre.volumetric import Check
from ..smt.builtins import on_symbols
from ..smt.execution import SymbolicRun, Truth, bare, holds_on, paths, stubbed
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation
from .symbolic_admission import Lengths, length, round_up

# Tokens. `walk_counts_every_request` holds for blocks of any size: no block has a part in it.
BLOCK = 64


def walk_counts_every_request(size: int) -> Obligation:
    return Obligation(
        f"walk_counts_every_request_{size}",
        f"The walk counts each decoding request ({size}), where one that runs longer has no "
        "smaller term.",
        partial(_walk_counts_every_request, size, 0),
        partial(_walk_counts_every_request, size, 1),
    )


def formula_projects_every_member(check: Check, block: int, size: int) -> Obligation:
    return Obligation(
        f"formula_projects_every_member_{size}",
        f"The walk gets a term for the newcomer and each decoding request ({size}) that covers it, "
        "and the limit; its answer is taken.",
        partial(_formula_projects_every_member, check, block, size, 0),
        partial(_formula_projects_every_member, check, block, size, 1),
    )


def request(number: int, **more: Any) -> Request:
    """A request of the model; its other fields have no part in the lemma."""
    return Request(**{"id": str(number), "prompt": 1, "max_tokens": 1, "output_len": 1, **more})


def _walk_counts_every_request(size: int, beyond: int) -> list[Any]:
    """Any terms, limit and tkv: the m active fit m times, if every active term covers the tkv."""
    numbers = Numbers()
    limit, own, own_left, step, tkv = (
        length(numbers, name) for name in ("limit", "own", "own_left", "step", "tkv")
    )
    terms = [length(numbers, "term") for _ in range(size)]
    lefts = [length(numbers, "left") for _ in range(size)]

    def code(run: SymbolicRun) -> Any:
        projection = volumetric.Projection(
            cast(int, run.number(own)), [cast(int, run.number(term)) for term in terms]
        )
        with on_symbols(volumetric):
            return volumetric.accepts(projection, cast(int, run.number(limit)))

    taken = list(paths(numbers, code, quick=True))
    for term, left in zip(terms, lefts, strict=True):
        numbers.facts += [
            z3.Implies(lesser <= left, lower <= term)
            for lower, lesser in zip(terms, lefts, strict=True)
        ]
        numbers.facts.append(z3.Implies(left >= step, tkv <= term))
    active = [left >= step for left in lefts]
    numbers.facts += [own_left >= step, tkv <= own, z3.Or(active)]
    batch = 1 + numbers.count(active)
    within = z3.And(
        [z3.Implies(batch == m, m * (tkv + beyond) <= limit) for m in range(2, size + 2)]
    )
    return holds_on(numbers, taken, lambda accepted: z3.Or(z3.BoolVal(not accepted), within))


def _formula_projects_every_member(check: Check, block: int, size: int, more: int) -> list[Any]:
    """A term covers the blocks of the base for as long as its request runs (`covers_decoding`)."""
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
    says = z3.Bool("says")

    def code(run: SymbolicRun) -> Any:
        walked = []

        def walk(projection: Any, most: Any) -> bool:
            walked.append((projection, most))
            return bool(Truth(run, says))

        number = cast(Any, run.number)
        symbols = [volumetric.Decoding(*map(number, member)) for member in members]
        newcomer = volumetric.Newcomer(*map(number, (prompt, tokens)))
        with on_symbols(volumetric), stubbed(volumetric, accepts=walk):
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
        if not answer:  # a refusal, also in front of the walk, lets nothing join
            return z3.BoolVal(True)
        if len(walked) != 1 or len(walked[0][0].decoding) != size:
            return z3.BoolVal(False)
        [(projection, most)] = walked
        terms = [bare(projection.newcomer), *map(bare, projection.decoding)]
        covered = [term >= least for term, least in zip(terms, due, strict=True)]
        return z3.And(says, bare(most) == limit + more, *covered)

    return holds_on(numbers, taken, right)
