"""How far a formula goes at its worst with so many requests: bisected, exactly.

`volume`: the largest batch x tkv that it lets come. `overshoot`: the same, beyond the limit only.
`waste`: the safest newcomer that it refuses, by the tokens below the limit that its largest
batch x tkv would have been.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import z3

from ...model.spyre import volumetric as model
from ...model.spyre.peak import peak_volume
from ..smt.numbers import read
from ..smt.obligation import decide
from .volumetric import (
    Arrival,
    Problem,
    Setting,
    accepted,
    admission,
    largest_tkv,
    make_arrivals,
    make_numbers,
    meeting,
    short_and_early,
    solution,
    violation,
)

Objective = Literal["volume", "overshoot", "waste"]
OBJECTIVES: tuple[Objective, ...] = ("volume", "overshoot", "waste")


class Known(NamedTuple):
    """What is known so far, in tokens: `arrivals` reach `reached` (where there are none it is what
    that was not asked for), and no request reaches more than `at_most`."""

    reached: int
    at_most: int
    arrivals: tuple[Arrival, ...]

    @property
    def exact(self) -> bool:
        """Nothing is left open. A guess may reach more than the bound that it is guessed by."""
        return self.reached >= self.at_most


# A run that goes beyond so many tokens and how far it goes, None if there is none, or unknown.
Reached = tuple[int, tuple[Arrival, ...]] | None | Literal["unknown"]


def worst(setting: Setting, objective: Objective) -> Iterator[Known]:
    """Narrow the worst case of `setting.requests` down; ends early where Z3 cannot tell."""
    if objective == "waste":
        return _worst_refusal(setting)
    floor = setting.limit if objective == "overshoot" else 0
    most = max(setting.requests * largest_tkv(setting), setting.limit)
    # First of all, whether the limit can be exceeded.
    nothing = Known(floor, most, ())
    return _bisected(lambda beyond: _volume(setting, beyond), nothing, setting.limit)


def _worst_refusal(setting: Setting) -> Iterator[Known]:
    """First where the worst refusals are, and by whole blocks; then everywhere, exactly."""
    known = Known(-1, setting.limit, ())
    for guess in _bisected(lambda beyond: _waste(setting, beyond, guess=True), known, -1):
        if guess.reached > known.reached:
            known = known._replace(reached=guess.reached, arrivals=guess.arrivals)
            yield known
    question = (known.reached + known.at_most) // 2 if known.arrivals else -1
    yield from _bisected(lambda beyond: _waste(setting, beyond), known, question)


def safest_refusal(setting: Setting, beyond: int, safe_by: str = "exact") -> Problem:
    """All but the last are accepted, and decode; the last is refused, and would leave more than
    `beyond` tokens below the limit, by the check `safe_by`. Where the tkv is `stale`, some of the
    others may have left in the decode step before."""
    numbers = make_numbers(setting, "integers")
    arrivals = make_arrivals(numbers, setting)
    for number in range(1, len(arrivals) - 1):
        numbers.facts += admission(
            numbers, setting, arrivals[:number], arrivals[number], all_requests=True
        )
    last = arrivals[-1]
    for one in arrivals[:-1]:
        age = last.joins - one.joins
        numbers.facts.append(one.decodes >= age if setting.stale else one.decodes > age)
    met, facts = meeting(numbers, setting, arrivals[:-1], last, all_requests=not setting.stale)
    safe = accepted(numbers, setting, safe_by, met, setting.limit - beyond - 1)
    refused = z3.Not(z3.And(accepted(numbers, setting, setting.formula, met, setting.limit)))
    return Problem([*numbers.facts, *facts, *safe, refused], arrivals, ())


def headroom(setting: Setting, arrivals: list[Arrival]) -> int:
    """Tokens below the limit that the last one's batch x tkv never reaches if it joins."""
    *earlier, last = arrivals
    ages = [last.joins - one.joins for one in earlier]
    decoding = [
        model.Decoding(one.prompt + age, one.max_tokens - 1 - age, 0)
        for one, age in zip(earlier, ages, strict=True)
        if one.decodes > age
    ]
    newcomer = model.Newcomer(last.prompt, last.max_tokens)
    return setting.limit - peak_volume(decoding, newcomer, setting.block)


def _bisected(ask: Callable[[int], Reached], known: Known, question: int) -> Iterator[Known]:
    while not known.exact:
        answer = ask(question)
        if answer == "unknown":
            return
        if answer is None:
            known = known._replace(at_most=question)
        else:
            known = Known(max(answer[0], known.reached), known.at_most, answer[1])
        yield known
        question = (known.reached + known.at_most) // 2


def _volume(setting: Setting, beyond: int) -> Reached:
    problem = violation(setting, beyond=beyond)
    answer, found = decide(problem.facts)
    if found is None:
        return None if answer == "unsat" else "unknown"
    batch, tkv = (read(found, number) for number in problem.overrun)
    return batch * tkv, tuple(solution(problem, found))


def _waste(setting: Setting, beyond: int, *, guess: bool = False) -> Reached:
    problem = safest_refusal(setting, beyond, "rounded" if guess else "exact")
    where = long_and_leaving if setting.stale else one_long_prompt
    facts = [*problem.facts, *where(setting, problem)] if guess else problem.facts
    answer, found = decide(facts)
    if found is None:
        return None if answer == "unsat" else "unknown"
    arrivals = solution(problem, found)
    return headroom(setting, arrivals), tuple(arrivals)


def one_long_prompt(setting: Setting, problem: Problem) -> list[Any]:
    """Short prompts that join early; then a long one; then, at once, the short one that is
    refused."""
    *early, long, last = problem.arrivals
    at_once = [last.prompt <= 2 * setting.block, last.joins == long.joins + 1]
    return at_once + short_and_early(setting, early)


def long_and_leaving(setting: Setting, problem: Problem) -> list[Any]:
    """A long request that leaves in the step before the refusal; the others are short."""
    long, *others = problem.arrivals
    *_, last = others
    facts = [one.prompt + one.max_tokens <= 4 * setting.block for one in others]
    return [*facts, long.decodes == last.joins - long.joins]
