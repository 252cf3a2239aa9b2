"""Lemmas about the code of an admission: `model.spyre.documented.fits_volume` and what it calls.

Nothing of it is written a second time: the code runs on symbols (`solver.execution`), with a
formula or a check in its place of which no more is known than the lemmas say.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import z3

from ...model.spyre import documented, volumetric
from ...model.spyre.config import SpyreConfig
from ...model.spyre.sound import SOUND
from ...model.spyre.state import Sequence as Request
from ...model.spyre.volumetric import ByFormula
from ..execution import Path, Run, Truth, bare, paths
from ..numbers import Numbers
from ..obligation import Obligation
from .formulas import Lengths
from .symbols import blocks, length, own_tkv

BLOCK = 64  # tokens; `counting` holds for blocks of any size, since no block has a part in it


def counting(size: int) -> Obligation:
    """For every formula."""
    return Obligation(
        f"counting_{size}",
        f"The walk counts each decoding request ({size}), whatever its term.",
        partial(_counting, size, 0),
        partial(_counting, size, 1),
    )


def asks(size: int, *, by_check: bool = False) -> Obligation:
    """For every formula, or for every check that projects nothing."""
    return Obligation(
        f"{'check_' * by_check}asks_{size}",
        f"The {'check' if by_check else 'formula'} is asked about the newcomer and the decoding "
        f"requests ({size}) as they are, and its answer is taken.",
        partial(_asks, by_check, size, 0),
        partial(_asks, by_check, size, 1),
    )


def holds_on(numbers: Numbers, taken: Sequence[Path], claim: Callable[[Any], Any]) -> list[Any]:
    """What must have no solution, if the claim about its result holds on every path."""
    wrong = [z3.And(*path.conditions, z3.Not(claim(path.result))) for path in taken]
    return [*numbers.facts, z3.Or(wrong)]


def fits_volume(
    run: Run, limit: Any, members: list[Request], newcomer: Request, current: Any = 0, **by: Any
) -> Any:
    """The model's own, by a formula or a check that is put in; `current`: the batch's tkv."""
    config = SpyreConfig(block_size=BLOCK, max_batch_tkv=cast(int, run.number(limit)))
    revision = replace(SOUND, **by)
    return documented.fits_volume(config, revision, current, members, newcomer)


def request(number: int, **more: Any) -> Request:
    """A request of the model; its other fields have no part in the lemma."""
    return Request(**{"id": str(number), "prompt": 1, "max_tokens": 1, "output_len": 1, **more})


def _counting(size: int, beyond: int) -> list[Any]:
    """Any terms, limit and tkv: the m active fit m times, if every active term covers the tkv."""
    numbers = Numbers()
    limit, own, own_left, step, tkv = (
        length(numbers, name) for name in ("limit", "own", "own_left", "step", "tkv")
    )
    terms = [length(numbers, "term") for _ in range(size)]
    lefts = [length(numbers, "left") for _ in range(size)]

    def code(run: Run) -> Any:
        def projects(*asked: Any) -> volumetric.Projection:
            return volumetric.Projection(
                cast(int, run.number(own)), [cast(int, run.number(term)) for term in terms]
            )

        members = [request(number) for number in range(size)]
        return fits_volume(run, limit, members, request(size), volume_check=ByFormula(projects))

    taken = list(paths(numbers, code))
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


def _asks(by_check: bool, size: int, more: int) -> list[Any]:
    """Each request is asked about as it is; a formula is asked at the batch's tkv, and a check with
    the limit of the configuration, and its answer is what counts."""
    numbers, lengths = Numbers(), Lengths(BLOCK, None)
    computed, left = ([length(numbers, name) for _ in range(size)] for name in ("has", "left"))
    limit, prompt, tokens, tkv = (
        length(numbers, name) for name in ("limit", "prompt", "tokens", "tkv")
    )
    widest = numbers.largest([blocks(numbers, lengths, one) for one in computed])
    says = z3.Bool("says")

    def code(run: Run) -> Any:
        asked: list[Any] = []

        def formula(at: Any, members: Any, joining: Any, block: Any) -> volumetric.Projection:
            asked.append(z3.And(bare(at) == tkv, as_they_are(members, joining, block)))
            return volumetric.Projection(cast(int, run.number(numbers.value(0))), [])

        def check(members: Any, joining: Any, block: Any, most: Any, _: Any) -> Any:
            asked.append(z3.And(bare(most) == limit, as_they_are(members, joining, block)))
            return Truth(run, says)

        members = [
            request(number, computed=run.number(has), max_tokens=run.number(rest + 1), generated=1)
            for number, (has, rest) in enumerate(zip(computed, left, strict=True))
        ]
        newcomer = request(size, prompt=run.number(prompt), max_tokens=run.number(tokens))
        by = {"volume_check": check if by_check else ByFormula(formula)}
        answer = bool(fits_volume(run, limit, members, newcomer, run.number(tkv), **by))
        return asked, answer

    def as_they_are(members: Any, joining: Any, block: Any) -> Any:
        if len(members) != size or block != BLOCK:
            return z3.BoolVal(False)
        return z3.And(
            bare(joining.prompt) == prompt,
            bare(joining.max_tokens) == tokens,
            *(
                z3.And(
                    bare(member.computed) == has,
                    bare(member.remaining) == rest + more,
                    bare(member.tkv) == own_tkv(numbers, lengths, has, widest),
                )
                for member, has, rest in zip(members, computed, left, strict=True)
            ),
        )

    def right(result: Any) -> Any:
        asked, answer = result
        if len(asked) != 1:
            return z3.BoolVal(False)
        return z3.And(asked[0], says == answer) if by_check else asked[0]

    return holds_on(numbers, list(paths(numbers, code)), right)
