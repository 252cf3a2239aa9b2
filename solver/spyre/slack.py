"""How many tokens of slack make a formula of the volumetric check sound, at least and at most.

At least: a run that goes beyond a limit although every request was given a token less. The limit is
a symbol, too: what the last request was accepted by, used to the last token. At most: the slack
with which the lemmas on the formula's terms hold (`volumetric_proof`).
"""

from typing import Any, NamedTuple

import z3

from ..smt.numbers import Numbers, read
from ..smt.obligation import decide
from .formulas import Projected, formula_named
from .volumetric import (
    Arrival,
    Joined,
    Setting,
    batch_tkv,
    make_arrivals,
    make_numbers,
    meeting,
)
from .volumetric_proof import covers

PATIENCE = 20.0  # seconds for a question


class Needed(NamedTuple):
    """`arrivals` go beyond `limit` where every request is given `tokens` - 1 tokens more."""

    tokens: int
    limit: int
    arrivals: tuple[Arrival, ...]


def needed(setting: Setting) -> Needed | None:
    """The run of `setting.requests` that needs most slack, as far as Z3 finds it in its time; None
    where it finds none. Whether each request is accepted is for a replay to say."""
    numbers = make_numbers(setting, "integers")
    arrivals = make_arrivals(numbers, setting)
    *earlier, last = arrivals
    reached = _together(numbers, setting, arrivals)
    limit = len(arrivals) * (reached - 1)
    numbers.facts += [one.prompt + one.max_tokens - 1 <= limit for one in arrivals]
    if len(arrivals) == 3:
        first = _projected(numbers, setting, earlier[:1], earlier[1])
        numbers.facts.append(z3.Or([2 * term <= limit for term in _terms(first)]))
    judged = _projected(numbers, setting, earlier, last)
    least = [judged.newcomer] if len(arrivals) > 2 else _terms(judged)
    numbers.facts += [term >= judged.newcomer for term in judged.decoding if len(arrivals) > 2]
    found, low, high = None, 0, setting.max_model_len + setting.block
    while low < high:
        asked = (low + high) // 2
        short = z3.Or([reached - term > asked for term in least])
        answer, model = decide([*numbers.facts, short], PATIENCE)
        if model is not None:
            run = tuple(Arrival(*(read(model, number) for number in one)) for one in arrivals)
            low = read(model, reached) - min(read(model, term) for term in least)
            found = Needed(low, read(model, limit), run)
        elif answer == "unsat":
            high = asked
        else:
            break
    return found


def enough(formula: str, most: int) -> int | None:
    """The least slack, up to `most` tokens, with which the formula's terms cover every tkv that can
    come; None where no slack is enough. By it the formula is sound."""
    low, high = -1, most
    if not covers(f"{formula}+{high}"):
        return None
    while high - low > 1:
        asked = (low + high) // 2
        low, high = (low, asked) if covers(f"{formula}+{asked}") else (asked, high)
    return high


def _together(numbers: Numbers, setting: Setting, arrivals: list[Joined]) -> Any:
    """The tkv of a step in which all of them decode."""
    time = numbers.fresh("time", 1, 2 * setting.max_model_len)
    numbers.facts.append(time > arrivals[-1].joins)
    numbers.facts += [one.decodes >= time - one.joins for one in arrivals]
    all_there = [z3.BoolVal(True)] * len(arrivals)
    lengths = [one.prompt + (time - one.joins) for one in arrivals]
    return batch_tkv(numbers, setting, all_there, lengths)[1]


def _projected(
    numbers: Numbers, setting: Setting, earlier: list[Joined], newcomer: Joined
) -> Projected:
    met, facts = meeting(numbers, setting, earlier, newcomer, all_requests=True)
    numbers.facts += facts
    return formula_named(setting.formula)(numbers, setting.lengths, *met)


def _terms(projected: Projected) -> list[Any]:
    return [projected.newcomer, *projected.decoding]
