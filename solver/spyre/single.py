"""One admission into any batch: does a formula accept a newcomer that will overrun the limit?

Wider than a sequence from an empty system: no history has to lead to the batch. So an `unsat` says
more, and a `sat` less: it names a batch, and not how to get there.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import z3

from ...model.spyre import volumetric as model
from ..smt.numbers import Kind, Numbers, read
from .formulas import ORDERED, Joining, Member, accepts_in_order, formula_named
from .volumetric import Meeting, Setting, accepted, batch_tkv, largest_harmless, make_numbers


class Single(NamedTuple):
    """Facts for a solver, and the numbers of its solution: `step` counts decode steps."""

    facts: list[Any]
    met: Meeting
    step: Any


class Overrun(NamedTuple):
    """A batch at `tkv`, a newcomer that joins it, and the step in which they overrun the limit."""

    tkv: int
    decoding: list[model.Decoding]
    newcomer: model.Newcomer
    step: int


def single_admission(setting: Setting, kind: Kind = "integers") -> Single:
    """`setting.requests` with the newcomer; without it they are within the limit in that step."""
    numbers = make_numbers(setting, kind)
    met = any_batch(numbers, setting)
    step = numbers.fresh("step", 1, setting.max_model_len)
    numbers.facts += overrun(numbers, setting, met, step)
    return Single(numbers.facts, met, step)


def any_batch(numbers: Numbers, setting: Setting) -> Meeting:
    """A batch, and a newcomer that is accepted; members in the order in which they end."""
    members = [_member(numbers, setting) for _ in range(setting.requests - 1)]
    for one, other in pairwise(members):
        numbers.facts.append(one[1] <= other[1])
    all_requests = [z3.BoolVal(True)] * len(members)
    own, tkv = batch_tkv(numbers, setting, all_requests, [computed for computed, _ in members])
    decoding = [
        Member(z3.BoolVal(True), *one, mine, numbers.fresh("prompt", 1, setting.max_model_len))
        for one, mine in zip(members, own, strict=True)
    ]
    numbers.facts += [one.prompt <= one.computed for one in decoding]
    met = Meeting(tkv, decoding, Joining(*_member(numbers, setting)))
    numbers.facts += _accepted(numbers, setting, met)
    return met


def overrun(numbers: Numbers, setting: Setting, met: Meeting, step: Any) -> list[Any]:
    """In decode step `step` from now the limit is exceeded, and without the newcomer it is not."""
    active = [member.remaining >= step for member in met.decoding]
    lengths = [member.computed + step for member in met.decoding]
    _, without = batch_tkv(numbers, setting, active, lengths)
    _, reached = batch_tkv(
        numbers, setting, [*active, z3.BoolVal(True)], [*lengths, met.newcomer.prompt + step]
    )
    overruns = list(_overruns(setting, active, without, reached))
    return [step <= met.newcomer.remaining, z3.Or(overruns)]


def found_in(problem: Single, solution: z3.ModelRef) -> Overrun:
    """The batch of a solution, with the members' own tkv."""

    def value(number: Any) -> int:
        return read(solution, number)

    return Overrun(
        value(problem.met.tkv),
        [model.Decoding(*(value(number) for number in one[1:])) for one in problem.met.decoding],
        model.Newcomer(
            value(problem.met.newcomer.prompt), value(problem.met.newcomer.remaining) + 1
        ),
        value(problem.step),
    )


def _accepted(numbers: Numbers, setting: Setting, met: Meeting) -> list[Any]:
    if setting.formula.partition("+")[0] not in ORDERED:
        return accepted(numbers, setting, setting.formula, met, setting.limit)
    projected = formula_named(setting.formula)(numbers, setting.lengths, *met)
    return accepts_in_order(projected, setting.limit)


def _member(numbers: Numbers, setting: Setting) -> tuple[Any, Any]:
    """Tokens computed and decode steps left, which fit in the model."""
    computed = numbers.fresh("computed", 1, setting.max_model_len)
    remaining = numbers.fresh("remaining", 1, setting.max_model_len)
    numbers.facts.append(computed + remaining <= setting.max_model_len)
    return computed, remaining


def _overruns(setting: Setting, active: list[Any], without: Any, reached: Any) -> Iterator[Any]:
    """By how many are active, the last so many: they fit, and with the newcomer they do not."""
    for size in range(1, len(active) + 1):
        if size + 1 <= largest_harmless(setting):
            continue
        started = z3.BoolVal(True) if size == len(active) else z3.Not(active[-size - 1])
        yield z3.And(
            active[-size],
            started,
            without <= setting.limit // size,
            reached > setting.limit // (size + 1),
        )
