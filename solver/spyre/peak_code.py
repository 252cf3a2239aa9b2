"""Lemmas about the code of `model.spyre.peak`: its walk, and the largest tkv between two ends.

As in `admission_code`, the code itself runs on symbols.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import peak
from ...model.spyre.volumetric import Decoding, Newcomer
from ..execution import Path, Run, bare, paths
from ..numbers import Numbers
from ..obligation import Obligation
from .admission_code import BLOCK, fits_volume, holds_on, request
from .formulas import Lengths, round_up
from .symbols import blocks, length


def alone(check: str) -> Obligation:
    """For a check of `peak.CHECKS`."""
    return Obligation(
        "alone",
        "A newcomer that is alone is refused where it can pass the limit.",
        partial(_alone, check, 0),
        partial(_alone, check, 1),
    )


def walk(size: int) -> Obligation:
    """For every check of `peak`."""
    return Obligation(
        f"walk_{size}",
        f"The walk counts, of the newcomer and the decoding requests ({size}), all that are active "
        "at each end.",
        partial(_walk, size, 0),
        partial(_walk, size, 1),
    )


def largest(size: int, block: int) -> Obligation:
    """For `exact`; Z3 answers for larger blocks only of one request."""
    return Obligation(
        f"largest_{size}",
        f"No tkv until the end is larger than the check says (requests: {size}, block {block}).",
        partial(_largest, size, block, 0),
        partial(_largest, size, block, 1),
    )


def reached(size: int, block: int) -> Obligation:
    """For `exact`: what it says comes, so that no safe request is refused."""
    return Obligation(
        f"reached_{size}",
        f"The check says the tkv of a step until the end (requests: {size}, block {block}).",
        partial(_reached, size, block, 0),
        partial(_reached, size, block, 1),
    )


def filled() -> Obligation:
    """For `rounded`."""
    return Obligation(
        "filled",
        "The check counts the blocks of the longest request at the end, filled.",
        partial(_filled, 0),
        partial(_filled, 1),
    )


def _alone(check: str, more: int) -> list[Any]:
    numbers = Numbers()
    limit, prompt, step = (length(numbers, name) for name in ("limit", "prompt", "step"))
    tokens = length(numbers, "tokens", 2)

    def code(run: Run) -> Any:
        newcomer = request(0, prompt=run.number(prompt), max_tokens=run.number(tokens))
        return fits_volume(run, limit, [], newcomer, volume_check=peak.CHECKS[check])

    taken = list(paths(numbers, code))
    numbers.facts.append(step < tokens)
    within = prompt + step + more * BLOCK <= limit
    return holds_on(numbers, taken, lambda accepted: z3.Or(z3.BoolVal(not accepted), within))


def _walk(size: int, more: int) -> list[Any]:
    numbers = Numbers()
    tokens = [length(numbers, "tokens") for _ in range(size + 1)]
    ends = [length(numbers, "ends", 0) for _ in range(size + 1)]
    answers = [length(numbers, "answer") for _ in range(size + 1)]
    offsets_of = [numbers.split(has, BLOCK, None)[1] for has in tokens]

    def code(run: Run) -> Any:
        calls: list[tuple[Any, list[Any], Any]] = []

        def largest_tkv(longest: Any, offsets: list[Any], at: Any, _: int) -> Any:
            calls.append((bare(longest), [bare(one) for one in offsets], bare(at)))
            return run.number(answers[len(calls) - 1])

        members = [
            Decoding(cast(int, run.number(has)), cast(int, run.number(left)), 0)
            for has, left in zip(tokens[1:], ends[1:], strict=True)
        ]
        newcomer = Newcomer(cast(int, run.number(tokens[0])), cast(int, run.number(ends[0] + 1)))
        return bare(peak.largest_volume(members, newcomer, BLOCK, largest_tkv)), calls

    def counted(result: Any) -> Any:
        volume, calls = result
        return z3.And(
            [
                z3.Implies(
                    z3.And(end > 0, end <= ends[0]),
                    z3.Or([is_asked(volume, call, at, end) for at, call in enumerate(calls)]),
                )
                for end in ends
            ]
        )

    def is_asked(volume: Any, call: tuple[Any, list[Any], Any], at: int, end: Any) -> Any:
        longest, offsets, asked_at = call
        active = [other >= end for other in ends]
        longest_active = [z3.If(here, has, 0) for here, has in zip(active, tokens, strict=True)]
        return z3.And(
            asked_at == end,
            longest == numbers.largest(longest_active),
            numbers.count(active) == len(offsets),
            volume >= len(offsets) * answers[at] + more,
            *(
                z3.Implies(here, z3.Or([offset == beyond for offset in offsets]))
                for here, beyond in zip(active, offsets_of, strict=True)
            ),
        )

    return holds_on(numbers, list(paths(numbers, code)), counted)


class _Same(NamedTuple):
    """Requests that run to the same end: the longest's tokens, all offsets, and what the code
    says of them."""

    numbers: Numbers
    longest: Any
    offsets: list[Any]
    ends: Any
    taken: list[Path]

    def tkvs(self, step: Any, block: int) -> list[Any]:
        """The tkv of each in a step."""
        width = blocks(self.numbers, Lengths(block, None), self.longest + step) - 1
        offsets = [self.numbers.split(one + step - 1, block, None)[1] for one in self.offsets]
        return [width * block + offset + 1 for offset in offsets]


def _same(size: int, block: int) -> _Same:
    numbers = Numbers()
    longest, ends = length(numbers, "longest"), length(numbers, "ends")
    offsets = [numbers.fresh("offset", 0, block - 1) for _ in range(size)]
    numbers.facts += [one <= other for one, other in pairwise(offsets)]
    own = numbers.split(longest, block, None)[1]
    numbers.facts.append(z3.Or([own == offset for offset in offsets]))

    def code(run: Run) -> Any:
        given = [cast(int, run.number(offset)) for offset in offsets]
        at = cast(int, run.number(ends))
        return peak.largest_tkv(cast(int, run.number(longest)), given, at, block)

    return _Same(numbers, longest, offsets, ends, list(paths(numbers, code)))


def _largest(size: int, block: int, less: int) -> list[Any]:
    same = _same(size, block)
    step = length(same.numbers, "step")
    same.numbers.facts.append(step <= same.ends)
    tkvs = same.tkvs(step, block)
    return holds_on(
        same.numbers, same.taken, lambda most: z3.And([one <= most - less for one in tkvs])
    )


def _reached(size: int, block: int, more: int) -> list[Any]:
    """Of the steps since the one that is a whole turn of blocks before the end."""
    same = _same(size, block)
    steps = []
    for back in range(block):
        there = same.ends > back
        at = z3.If(there, same.ends - back, same.ends)
        steps.append((there, same.numbers.largest(same.tkvs(at, block))))
    return holds_on(
        same.numbers,
        same.taken,
        lambda most: z3.Or([z3.And(there, tkv == bare(most) + more) for there, tkv in steps]),
    )


def _filled(less: int) -> list[Any]:
    numbers = Numbers()
    longest, ends = length(numbers, "longest"), length(numbers, "ends")

    def code(run: Run) -> Any:
        return peak.filled_blocks(
            cast(int, run.number(longest)), [], cast(int, run.number(ends)), BLOCK
        )

    due = round_up(numbers, Lengths(BLOCK, None), longest + ends)
    return holds_on(numbers, list(paths(numbers, code)), lambda most: most - less >= due)
