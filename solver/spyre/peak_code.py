"""Lemmas about the code of `model.spyre.peak`: its walk, and the largest tkv between two ends.

As in `admission_code`, the code itself runs on symbols.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import peak
from ...model.spyre.volumetric import Decoding, Newcomer
from ..smt.execution import Path, SymbolicRun, bare, paths
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation
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


def around(size: int) -> Obligation:
    """For `exact`: what is assumed of the two offsets in `largest` and `reached`."""
    return Obligation(
        f"around_{size}",
        f"Of the offsets ({size}) the next below and the next above a turn are found.",
        partial(_around, size, 0),
        partial(_around, size, 1),
    )


def goes_by(size: int) -> Obligation:
    """For `exact`."""
    return Obligation(
        f"goes_by_{size}",
        f"The check goes by the two offsets next to the turn of the end ({size}).",
        partial(_goes_by, size, 0),
        partial(_goes_by, size, 1),
    )


def largest() -> Obligation:
    """For `exact`."""
    return Obligation(
        "largest",
        "No request's tkv until the end is larger than the check says.",
        partial(_largest, 0),
        partial(_largest, 1),
    )


def reached() -> Obligation:
    """For `exact`: what it says comes, so that no safe request is refused."""
    return Obligation(
        "reached",
        "The check says the tkv of some request in some step until the end.",
        partial(_reached, 0),
        partial(_reached, 1),
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

    def code(run: SymbolicRun) -> Any:
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

    def code(run: SymbolicRun) -> Any:
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


def _around(size: int, more: int) -> list[Any]:
    """A list of any offsets in order, and any turn."""
    numbers = Numbers()
    offsets = _in_order(numbers, size)
    turn = numbers.fresh("turn", 0, BLOCK - 1)

    def code(run: SymbolicRun) -> Any:
        given = [cast(int, run.number(offset)) for offset in offsets]
        at = cast(int, run.number(turn))
        return bare(peak.next_below(given, at)), bare(peak.next_above(given, at))

    def found(result: Any) -> Any:
        below, above = result[0], result[1] + more
        sides = [z3.And(_below(turn, below, one), _above(turn, above, one)) for one in offsets]
        there = [z3.Or([one == offset for offset in offsets]) for one in (below, above)]
        return z3.And(*sides, *there)

    return holds_on(numbers, list(paths(numbers, code)), found)


def _goes_by(size: int, more: int) -> list[Any]:
    """`largest_tkv` against its parts."""
    numbers = Numbers()
    longest, ends = length(numbers, "longest"), length(numbers, "ends")
    offsets = _in_order(numbers, size)

    def code(run: SymbolicRun) -> Any:
        given = [cast(int, run.number(offset)) for offset in offsets]
        most, at = cast(int, run.number(longest)), cast(int, run.number(ends))
        below = peak.next_below(given, (1 - at) % BLOCK)
        above = peak.next_above(given, -at % BLOCK)
        parts = peak.largest_of_two(most, below, above, at, BLOCK)
        return bare(peak.largest_tkv(most, given, at, BLOCK)), bare(parts)

    def same(result: Any) -> Any:
        said, parts = result
        return said == parts + more

    return holds_on(numbers, list(paths(numbers, code)), same)


def _in_order(numbers: Numbers, size: int) -> list[Any]:
    """`size` offsets, ascending."""
    offsets = [numbers.fresh("offset", 0, BLOCK - 1) for _ in range(size)]
    numbers.facts += [one <= other for one, other in pairwise(offsets)]
    return offsets


def _below(turn: Any, below: Any, offset: Any) -> Any:
    """Beside any offset: `below` is the largest below the turn, or the largest of all."""
    largest_of_all = z3.And(offset >= turn, offset <= below)
    return z3.If(below >= turn, largest_of_all, z3.Or(offset >= turn, offset <= below))


def _above(turn: Any, above: Any, offset: Any) -> Any:
    """Beside any offset: `above` is the smallest not below the turn, or the smallest of all."""
    smallest_of_all = z3.And(offset < turn, offset >= above)
    return z3.If(above < turn, smallest_of_all, z3.Or(offset < turn, offset >= above))


class _ToTheEnd(NamedTuple):
    """Any number of requests that run to the same end: the longest's tokens, the offset of any of
    them, the two offsets that the code goes by, and what it says."""

    numbers: Numbers
    longest: Any
    offset: Any
    below: Any
    above: Any
    ends: Any
    taken: list[Path]

    @classmethod
    def make(cls) -> "_ToTheEnd":
        """With what `around` says of the two, beside any offset, their own and the longest's."""
        numbers = Numbers()
        longest, ends = length(numbers, "longest"), length(numbers, "ends")
        offset, below, above = (
            numbers.fresh(name, 0, BLOCK - 1) for name in ("offset", "below", "above")
        )
        own = numbers.split(longest, BLOCK, None)[1]
        first, then = (
            numbers.split(turn, BLOCK, None, signed=True)[1] for turn in (1 - ends, -ends)
        )
        for one in (offset, own, below, above):
            numbers.facts += [_below(first, below, one), _above(then, above, one)]

        def code(run: SymbolicRun) -> Any:
            most, lower, upper, at = (
                cast(int, run.number(one)) for one in (longest, below, above, ends)
            )
            return peak.largest_of_two(most, lower, upper, at, BLOCK)

        return cls(numbers, longest, offset, below, above, ends, list(paths(numbers, code)))

    def tkv(self, offset: Any, step: Any) -> Any:
        """Of a request with this offset, in a step."""
        width = blocks(self.numbers, Lengths(BLOCK, None), self.longest + step) - 1
        return width * BLOCK + self.numbers.split(offset + step - 1, BLOCK, None)[1] + 1

    def says(self, claim: Callable[[Any], Any]) -> list[Any]:
        """What must have no solution, if the claim about what the code says holds."""
        self.numbers.tell_quotients(BLOCK)
        return holds_on(self.numbers, self.taken, claim)


def _largest(less: int) -> list[Any]:
    batch = _ToTheEnd.make()
    step = length(batch.numbers, "step")
    batch.numbers.facts.append(step <= batch.ends)
    tkv = batch.tkv(batch.offset, step)
    return batch.says(lambda most: tkv <= bare(most) - less)


def _reached(more: int) -> list[Any]:
    """In the last step by the one next below, or by the one next above when it filled a block."""
    batch = _ToTheEnd.make()
    _, then = batch.numbers.split(-batch.ends, BLOCK, None, signed=True)
    _, back = batch.numbers.split(batch.above - then, BLOCK, None, signed=True)
    before = z3.If(batch.ends > back, batch.ends - back, batch.ends)
    last, filled = batch.tkv(batch.below, batch.ends), batch.tkv(batch.above, before)
    return batch.says(lambda most: z3.Or(bare(most) + more == last, bare(most) + more == filled))


def _filled(less: int) -> list[Any]:
    numbers = Numbers()
    longest, ends = length(numbers, "longest"), length(numbers, "ends")

    def code(run: SymbolicRun) -> Any:
        return peak.filled_blocks(
            cast(int, run.number(longest)), [], cast(int, run.number(ends)), BLOCK
        )

    due = round_up(numbers, Lengths(BLOCK, None), longest + ends)
    return holds_on(numbers, list(paths(numbers, code)), lambda most: most - less >= due)
