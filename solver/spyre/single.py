"""One admission into any batch: does a formula accept a newcomer that will overrun the limit?

Wider than a sequence from an empty system: no history has to lead to the batch. So an `unsat` says
more, and a `sat` less: it names a batch, and not how to get there.
"""

from typing import Any, NamedTuple

import z3

from ...model.spyre import volumetric as model
from ..numbers import Kind, Numbers, read
from .formulas import ORDERED, Joining, Lengths, Member, accepts_in_order, formula_named
from .volumetric import Meeting, Setting, accepted, batch_tkv, largest_harmless, make_numbers


class Single(NamedTuple):
    """Facts for a solver, and the numbers of its solution: `step` counts decode steps."""

    facts: list[Any]
    tkv: Any
    decoding: list[Member]
    newcomer: Joining
    step: Any


class Found(NamedTuple):
    """A batch at `tkv`, a newcomer that joins it, and the step in which they overrun the limit."""

    tkv: int
    decoding: list[model.Decoding]
    newcomer: model.Newcomer
    step: int


def single_admission(setting: Setting, kind: Kind = "integers") -> Single:
    """`setting.requests` with the newcomer; without it they are within the limit in that step.

    Members are in the order in which they end: those of a step are the last so many.
    """
    numbers = make_numbers(setting, kind)
    members = [_member(numbers, setting) for _ in range(setting.requests - 1)]
    for one, other in zip(members, members[1:], strict=False):
        numbers.facts.append(one[1] <= other[1])
    prompt, remaining = _member(numbers, setting)
    everyone = [z3.BoolVal(True)] * len(members)
    own, tkv = batch_tkv(numbers, setting, everyone, [computed for computed, _ in members])
    decoding = [
        Member(z3.BoolVal(True), *one, mine) for one, mine in zip(members, own, strict=True)
    ]
    newcomer = Joining(prompt, remaining)
    met = Meeting(tkv, decoding, newcomer)
    numbers.facts += _accepted(numbers, setting, met)
    step = numbers.fresh("step", 1, setting.max_model_len)
    numbers.facts.append(step <= remaining)
    active = [member.remaining >= step for member in decoding]
    lengths = [member.computed + step for member in decoding]
    _, without = batch_tkv(numbers, setting, active, lengths)
    _, reached = batch_tkv(
        numbers, setting, [*active, z3.BoolVal(True)], [*lengths, prompt + step]
    )
    numbers.facts.append(z3.Or(list(_overruns(setting, active, without, reached))))
    return Single(numbers.facts, tkv, decoding, newcomer, step)


def found_in(problem: Single, solution: z3.ModelRef) -> Found:
    """The batch of a solution, with the members' own tkv."""

    def value(number: Any) -> int:
        return read(solution, number)

    return Found(
        value(problem.tkv),
        [
            model.Decoding(value(one.computed), value(one.remaining), value(one.tkv))
            for one in problem.decoding
        ],
        model.Newcomer(value(problem.newcomer.prompt), value(problem.newcomer.remaining) + 1),
        value(problem.step),
    )


def _accepted(numbers: Numbers, setting: Setting, met: Meeting) -> list[Any]:
    if setting.formula.partition("+")[0] not in ORDERED:
        return accepted(numbers, setting, setting.formula, met, setting.limit)
    lengths = Lengths(setting.block, 2 * setting.max_model_len + 4 * setting.block)
    projected = formula_named(setting.formula)(
        numbers, lengths, met.tkv, met.decoding, met.newcomer
    )
    return accepts_in_order(projected, setting.limit)


def _member(numbers: Numbers, setting: Setting) -> tuple[Any, Any]:
    """Tokens computed and decode steps left, which fit in the model."""
    computed = numbers.fresh("computed", 1, setting.max_model_len)
    remaining = numbers.fresh("remaining", 1, setting.max_model_len)
    numbers.facts.append(computed + remaining <= setting.max_model_len)
    return computed, remaining


def _overruns(setting: Setting, active: list[Any], without: Any, reached: Any) -> Any:
    """By how many are active: they fit, and with the newcomer they do not."""
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
