"""Compare the explorer with Spin on the same model, rule and scope.

The model for Spin, `spyre.pml`, is written as a person would write it. LATE adds a manual
reduction: no request arrives while another one is waiting. Each tool runs in its own process. The
times cover the whole answer, including Spin's translation and compilation. A run that does not end
in time has no verdict. Needs spin and gcc.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from schedproof.gate.explore.explorer import memory_mb
from schedproof.gate.processes.work_process import run_in_process
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.spyre.space import SCOPES
from schedproof.spec.catalogue import load, select

from . import spin
from .figure import FigurePlan, Row

LENGTHS = SCOPES[0]
SPIN_MB = 6_000
START_UP = 30.0  # seconds that a process may take in addition to its search


class Question(NamedTuple):
    """A rule of a revision in one scope. All `limits` on batch x tkv are checked in one search."""

    rule: str
    revision: str
    requests: int
    limits: Sequence[int]

    def __str__(self) -> str:
        first, last = self.limits[0], self.limits[-1]
        limits = f"{first}" if first == last else f"{first}-{last}"
        return f"{self.requests} requests, limit {limits}"


class Answer(NamedTuple):
    """The answer of a tool. `holds` is None if the tool did not finish in time."""

    holds: bool | None
    states: int
    transitions: int
    seconds: float
    memory_mb: float


ALL_LIMITS = range(6, 41)
# The last question takes minutes; only `tools.explorers` asks it.
QUESTIONS = (
    Question("SPY-R07", "2.1.2", 2, ALL_LIMITS),
    Question("SPY-R07", "2.1.2", 3, range(26, 27)),
    Question("SPY-R07", "2.1.2", 3, ALL_LIMITS),
    Question("SPY-R07", "2.1.2", 4, range(26, 27)),
    Question("SPY-R07", "2.1.2", 4, ALL_LIMITS),
)
QUICK = (Question("SPY-R07", "2.1.2", 1, range(26, 27)),)


def by_spin(question: Question, seconds: float, late: bool) -> Answer:
    """Return Spin's answer. `late` adds the reduction LATE."""
    macros = {
        **spin.SMALL,
        **spin.REVISIONS[question.revision],
        "REQUESTS": question.requests,
        "LIMIT_FROM": question.limits[0],
        "LIMIT_TO": question.limits[-1],
        question.rule.replace("SPY-", "CHECK_"): 1,
    }
    if late:
        macros["LATE"] = 1
    it = spin.verdict(macros, memory_mb=SPIN_MB, seconds=seconds)
    spent = it.seconds_translate + it.seconds_compile + it.seconds_run
    return Answer(it.holds, it.states, it.transitions, spent, it.memory_mb)


def by_explorer(question: Question, seconds: float, reduced: bool) -> Answer:
    """Return the explorer's answer. The explorer runs in its own process, so that its memory can
    be measured."""
    [answer] = run_in_process(seconds + START_UP, _explore, question, seconds, reduced)
    return Answer(*answer)


def _explore(question: Question, seconds: float, reduced: bool) -> Iterator[Answer]:
    scope = replace(LENGTHS, requests=question.requests, limits=tuple(question.limits))
    began = time.monotonic()
    run = Exploration(
        ExploreOptions(question.revision, scope, reduced=reduced),
        select(load("spyre"), [question.rule]),
    )
    for _ in run.search.run():
        if time.monotonic() - began > seconds:
            break
    explored = run.result()
    holds = None if not explored.complete else not explored.counterexamples
    states = sum(explored.states_by_limit.values())
    spent = time.monotonic() - began
    yield Answer(holds, states, explored.transitions, spent, memory_mb())


def answers(question: Question, seconds: float) -> dict[str, Answer]:
    """Return the tools' answers, the explorer's first. For a small scope, include the explorer's
    answer on the full graph.

    Raises:
        AssertionError: the tools disagree.
    """
    found = {"explorer": by_explorer(question, seconds, reduced=True)}
    if question.requests < 3:
        found["explorer, full graph"] = by_explorer(question, seconds, reduced=False)
    if not spin.MISSING:
        found["Spin"] = by_spin(question, seconds, late=False)
        found["Spin, reduced by hand"] = by_spin(question, seconds, late=True)
    verdicts = {found_by.holds for found_by in found.values() if found_by.holds is not None}
    assert len(verdicts) < 2, f"the tools disagree on {question}: {found}"
    return found


def rows(quick: bool) -> Iterator[Row]:
    """Yield two rows for each tool and question: its pace, and how long the whole answer takes."""
    for question in QUICK if quick else QUESTIONS[:-1]:
        found = answers(question, 10.0 if quick else 100.0)
        base = found["explorer"]
        for tool, figures in found.items():
            yield Row(
                what=f"{tool}, pace: {question}",
                value=figures.transitions / figures.seconds,
                unit="transitions/s",
                ratio=(figures.transitions / figures.seconds) / (base.transitions / base.seconds),
                to="explorer, pace",
                note=f"{figures.transitions:,} transitions, {figures.memory_mb:,.0f} MB",
            )
        for tool, figures in found.items():
            late = figures.holds is None
            yield Row(
                what=f"{tool}, answer: {question}",
                value=figures.seconds,
                unit="s",
                at_least=late,
                ratio=None if base.holds is None else figures.seconds / base.seconds,
                ratio_at_least=late,
                to="explorer, answer",
                note=f"{figures.states:,} states, {_in_words(figures.holds)}",
            )
    if spin.MISSING:
        yield Row(
            what="Spin",
            value=None,
            unit="transitions/s",
            note=f"not measured: {' and '.join(spin.MISSING)} not installed",
        )


def _in_words(holds: bool | None) -> str:
    return {True: "holds", False: "broken", None: "not in time"}[holds]


PLAN = FigurePlan(
    "explorers",
    "The explorer compared with Spin",
    "SPY-R07 on revision 2.1.2; wall-clock seconds, one process for each tool; Spin's answers "
    "include translation and compilation",
    rows,
)
