"""The fewest requests with which a formula lets the limit be exceeded (SPY-R07)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ..smt.numbers import Kind
from ..smt.obligation import Answer, decide
from .volumetric import (
    Arrival,
    Problem,
    Setting,
    largest_harmless,
    short_and_early,
    solution,
    violation,
)


class Question(NamedTuple):
    """One question to the solver and its answer.

    `where` is "short prompts first", where most counterexamples are, or "everywhere": only the
    latter's `unsat` says anything. `arrivals` is the sequence of a `sat`.
    """

    requests: int
    where: str
    answer: Answer
    arrivals: tuple[Arrival, ...] = ()


def fewest(setting: Setting, most: int, kind: Kind = "integers") -> Iterator[Question]:
    """Ask with more and more requests, up to `most`, until there is a counterexample.

    Fewer than `largest_harmless` + 1 cannot exceed the limit whatever admits them; two are the
    fewest that an admission rule has a say in.
    """
    for requests in range(max(largest_harmless(setting) + 1, 2), most + 1):
        problem = violation(replace(setting, requests=requests), kind)
        for where, extra in (
            ("short prompts first", short_and_early(setting, problem.arrivals[:-1])),
            ("everywhere", []),
        ):
            asked = ask(problem, extra, requests, where)
            if asked.answer == "sat" or where == "everywhere":
                yield asked
            if asked.answer == "sat":
                return


def ask(problem: Problem, extra: list[Any], requests: int, where: str) -> Question:
    """Ask the solver one question within its time limit."""
    answer, found = decide([*problem.facts, *extra])
    return Question(requests, where, answer, tuple(solution(problem, found)) if found else ())
