"""How a formula fails: the fewest requests that exceed the limit, the worst excess, and the slack
that it lacks.

- `fewest`: the fewest requests that exceed the limit under a formula (SPY-R07).
- `worst`: the worst case for a given number of requests, by exact bisection. `volume` is the
  largest batch x tkv that the formula admits, and `overshoot` is how far that exceeds the limit.
  `waste` is about the safest newcomer that the formula refuses: it is the number of tokens below
  the limit that would never have been used if this newcomer had joined.
- `needed`, `least_slack`: bounds on the slack, in tokens, that makes a formula sound. For the lower
  bound, there is a run that exceeds the limit if every request has one token less slack. The limit
  of this run is a symbol, and the last request uses it up to the last token. The upper bound is the
  slack with which the lemmas hold (`formula_lemmas`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import z3

from ...model.spyre import volumetric as model
from ...model.spyre.peak import peak_volume
from ..smt.numbers import Numbers, value_in
from ..smt.obligation import Answer, decide
from .admission_sequences import (
    Arrival,
    Joined,
    Problem,
    Setting,
    accepted,
    admission,
    batch_tkv,
    largest_harmless,
    largest_tkv,
    make_arrivals,
    meeting,
    short_and_early,
    solution,
    violation,
)
from .formula_lemmas import covers
from .symbolic_admission import Projected, formula_named


class Question(NamedTuple):
    """One question to the solver and its answer.

    `where` is "short prompts first", where most counterexamples are, or "everywhere". `unsat` rules
    out every counterexample only with "everywhere". If the answer is `sat`, `arrivals` is the
    counterexample.
    """

    requests: int
    where: str
    answer: Answer
    arrivals: tuple[Arrival, ...] = ()


def fewest(setting: Setting, most: int) -> Iterator[Question]:
    """Search for counterexamples with more and more requests, up to `most`. Yield each question,
    and stop at the first counterexample.

    The search starts above `largest_harmless`, because fewer requests cannot exceed the limit,
    whatever rule admits them. It also starts at two or more, because an admission rule has nothing
    to decide about a single request.
    """
    for requests in range(max(largest_harmless(setting) + 1, 2), most + 1):
        problem = violation(replace(setting, requests=requests))
        for where, extra in (
            ("short prompts first", short_and_early(setting, problem.arrivals[:-1])),
            ("everywhere", []),
        ):
            question = ask(problem, extra, requests, where)
            if question.answer == "sat" or where == "everywhere":
                yield question
            if question.answer == "sat":
                return


def ask(problem: Problem, extra: list[Any], requests: int, where: str) -> Question:
    answer, model = decide([*problem.facts, *extra])
    return Question(requests, where, answer, tuple(solution(problem, model)) if model else ())


Objective = Literal["volume", "overshoot", "waste"]
OBJECTIVES: tuple[Objective, ...] = ("volume", "overshoot", "waste")


class Known(NamedTuple):
    """The bounds known so far, in tokens.

    The run in `arrivals` reaches `reached`. While `arrivals` is empty, no run is known, and
    `reached` is only the start of the search. No run is expected to reach more than `at_most`.
    """

    reached: int
    at_most: int
    arrivals: tuple[Arrival, ...]

    @property
    def exact(self) -> bool:
        """Return whether the bounds meet. A run may even exceed `at_most`, if that was only
        estimated from lengths in whole blocks."""
        return self.reached >= self.at_most


# Returns the tokens that a run beyond the given ones reaches, and its arrivals; None if there is no
# such run.
Reached = tuple[int, tuple[Arrival, ...]] | None | Literal["unknown"]


def worst(setting: Setting, objective: Objective) -> Iterator[Known]:
    """Yield bounds on the worst case that get closer and closer. Stop early if Z3 gives up."""
    if objective == "waste":
        return _worst_refusal(setting)
    floor = setting.limit if objective == "overshoot" else 0
    most = max(setting.requests * largest_tkv(setting), setting.limit)
    # First, find out whether the limit can be exceeded.
    nothing = Known(floor, most, ())
    return _bisected(lambda beyond: _volume(setting, beyond), nothing, setting.limit)


def _worst_refusal(setting: Setting) -> Iterator[Known]:
    """Yield bounds on the waste. First search only lengths that are whole blocks, and only where
    the worst refusals usually are; then search exactly and everywhere."""
    known = Known(-1, setting.limit, ())
    for guess in _bisected(lambda beyond: _waste(setting, beyond, guess=True), known, -1):
        if guess.reached > known.reached:
            known = known._replace(reached=guess.reached, arrivals=guess.arrivals)
            yield known
    question = (known.reached + known.at_most) // 2 if known.arrivals else -1
    yield from _bisected(lambda beyond: _waste(setting, beyond), known, question)


def safest_refusal(setting: Setting, beyond: int, safe_by: str = "exact") -> Problem:
    """Return the problem of finding a refusal that would leave more than `beyond` tokens below the
    limit.

    All requests except the last are accepted and decode. The check `safe_by` decides how much room
    the last one would leave. If the tkv is `stale`, some of the others may have left in the
    preceding decode step.
    """
    numbers = Numbers()
    arrivals = make_arrivals(numbers, setting)
    for number in range(1, len(arrivals) - 1):
        numbers.facts += admission(
            numbers, setting, arrivals[:number], arrivals[number], all_requests=True
        )
    last = arrivals[-1]
    for arrival in arrivals[:-1]:
        age = last.joins - arrival.joins
        numbers.facts.append(arrival.decodes >= age if setting.stale else arrival.decodes > age)
    met, facts = meeting(numbers, setting, arrivals[:-1], last, all_requests=not setting.stale)
    safe = accepted(numbers, setting, safe_by, met, setting.limit - beyond - 1)
    refused = z3.Not(z3.And(accepted(numbers, setting, setting.formula, met, setting.limit)))
    return Problem([*numbers.facts, *facts, *safe, refused], arrivals, ())


def headroom(setting: Setting, arrivals: list[Arrival]) -> int:
    """Return the number of tokens by which batch x tkv always stays below the limit if the last
    request joins."""
    *earlier, last = arrivals
    ages = [last.joins - request.joins for request in earlier]
    decoding = [
        model.Decoding(request.prompt + age, request.max_tokens - 1 - age, 0)
        for request, age in zip(earlier, ages, strict=True)
        if request.decodes > age
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
    answer, model = decide(problem.facts)
    if model is None:
        return None if answer == "unsat" else "unknown"
    batch, tkv = (value_in(model, number) for number in problem.overrun)
    return batch * tkv, tuple(solution(problem, model))


def _waste(setting: Setting, beyond: int, *, guess: bool = False) -> Reached:
    problem = safest_refusal(setting, beyond, "rounded" if guess else "exact")
    where = long_and_leaving if setting.stale else one_long_prompt
    facts = [*problem.facts, *where(setting, problem)] if guess else problem.facts
    answer, model = decide(facts)
    if model is None:
        return None if answer == "unsat" else "unknown"
    arrivals = solution(problem, model)
    return headroom(setting, arrivals), tuple(arrivals)


def one_long_prompt(setting: Setting, problem: Problem) -> list[Any]:
    """Return facts that narrow the search: short prompts join early, and a long one later. Right
    after the long one comes a short one, which is refused."""
    *early, long, last = problem.arrivals
    at_once = [last.prompt <= 2 * setting.block, last.joins == long.joins + 1]
    return at_once + short_and_early(setting, early)


def long_and_leaving(setting: Setting, problem: Problem) -> list[Any]:
    """Return facts that narrow the search: a long request leaves in the step before the refusal,
    and the others are short."""
    long, *others = problem.arrivals
    *_, last = others
    facts = [request.prompt + request.max_tokens <= 4 * setting.block for request in others]
    return [*facts, long.decodes == last.joins - long.joins]


PATIENCE = 20.0  # seconds for a question


class Needed(NamedTuple):
    """A run that shows how much slack a formula needs: its `arrivals` exceed `limit` if every
    request has one token less slack than `tokens`."""

    tokens: int
    limit: int
    arrivals: tuple[Arrival, ...]


def needed(setting: Setting) -> Needed | None:
    """Return a run of `setting.requests` requests that needs as much slack as possible, the best
    that Z3 finds in time. Return None if Z3 finds none.

    A replay must confirm that each request is accepted.
    """
    numbers = Numbers()
    arrivals = make_arrivals(numbers, setting)
    *earlier, last = arrivals
    reached = _together(numbers, setting, arrivals)
    limit = len(arrivals) * (reached - 1)
    numbers.facts += [arrival.prompt + arrival.max_tokens - 1 <= limit for arrival in arrivals]
    if len(arrivals) == 3:
        first = _projected(numbers, setting, earlier[:1], earlier[1])
        numbers.facts.append(z3.Or([2 * term <= limit for term in _terms(first)]))
    judged = _projected(numbers, setting, earlier, last)
    least = [judged.newcomer] if len(arrivals) > 2 else _terms(judged)
    numbers.facts += [term >= judged.newcomer for term in judged.decoding if len(arrivals) > 2]
    most_needed, low, high = None, 0, setting.max_model_len + setting.block
    while low < high:
        middle = (low + high) // 2
        short = z3.Or([reached - term > middle for term in least])
        answer, model = decide([*numbers.facts, short], PATIENCE)
        if model is not None:
            run = tuple(
                Arrival(*(value_in(model, number) for number in arrival)) for arrival in arrivals
            )
            low = value_in(model, reached) - min(value_in(model, term) for term in least)
            most_needed = Needed(low, value_in(model, limit), run)
        elif answer == "unsat":
            high = middle
        else:
            break
    return most_needed


def with_slack(formula: str, tokens: int) -> str:
    name, _, given = formula.rpartition("+")
    return f"{name}+{int(given) + tokens}" if given.isdigit() and name else f"{formula}+{tokens}"


def least_slack(formula: str, most: int) -> int | None:
    """Return the smallest slack, up to `most` tokens, with which the formula's terms cover every
    possible tkv.

    With this slack, the formula is sound. Return None if no slack up to `most` is enough.
    """
    low, high = -1, most
    if not covers(with_slack(formula, high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if covers(with_slack(formula, middle)) else (middle, high)
    return high


def _together(numbers: Numbers, setting: Setting, arrivals: list[Joined]) -> Any:
    time = numbers.fresh("time", 1, 2 * setting.max_model_len)
    numbers.facts.append(time > arrivals[-1].joins)
    numbers.facts += [arrival.decodes >= time - arrival.joins for arrival in arrivals]
    all_there = [z3.BoolVal(True)] * len(arrivals)
    lengths = [arrival.prompt + (time - arrival.joins) for arrival in arrivals]
    return batch_tkv(numbers, setting, all_there, lengths)[1]


def _projected(
    numbers: Numbers, setting: Setting, earlier: list[Joined], newcomer: Joined
) -> Projected:
    met, facts = meeting(numbers, setting, earlier, newcomer, all_requests=True)
    numbers.facts += facts
    return formula_named(setting.formula)(numbers, setting.lengths, *met)


def _terms(projected: Projected) -> list[Any]:
    return [projected.newcomer, *projected.decoding]
