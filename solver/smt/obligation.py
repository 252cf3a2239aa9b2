"""Questions to a solver, obligations (claims that must have no solution), and proofs of rules."""

import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import z3

from ...model.scenario import Scenario


class ScenarioPair(NamedTuple):
    """The same requests in two configurations; in the second, more of them are preempted."""

    few: Scenario
    more: Scenario


Answer = Literal["sat", "unsat", "unknown"]
PATIENCE = 5.0  # seconds of Z3 for one claim; then the second solver gets it


def decide(facts: list[Any], seconds: float | None = None) -> tuple[Answer, z3.ModelRef | None]:
    """Return whether all facts can hold together and, if so, a model.

    The question runs in a context of its own. Otherwise what Z3 finds in time would depend on the
    order in which terms were made, and so on every question before this one.
    """
    shared = z3.Solver()
    shared.add(facts)
    alone = z3.Context()
    solver = z3.Solver(ctx=alone)
    solver.add(*shared.assertions().translate(alone))
    if seconds is not None:
        solver.set("timeout", int(1000 * seconds))
    answer = solver.check()
    if answer == z3.sat:
        return "sat", solver.model().translate(z3.main_ctx())
    return ("unsat" if answer == z3.unsat else "unknown"), None


def decide_by_cvc5(facts: list[Any], seconds: float) -> Answer:
    """Return the answer of cvc5; "unknown" if it is not installed."""
    if importlib.util.find_spec("cvc5") is None:
        return "unknown"
    import cvc5

    question = z3.Solver()
    question.add(facts)
    solver = cvc5.Solver()
    solver.setOption("tlimit-per", str(int(1000 * seconds)))
    solver.setOption("nl-ext-tplanes", "true")
    parser = cvc5.InputParser(solver)
    text = "(set-logic QF_NIA)\n" + question.sexpr() + "\n"
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    while True:
        command = parser.nextCommand()
        if command.isNull():
            break
        command.invoke(solver, parser.getSymbolManager())
    result = solver.checkSat()
    return "sat" if result.isSat() else "unsat" if result.isUnsat() else "unknown"


@dataclass(frozen=True)
class Obligation:
    """One lemma.

    `sentence` holds if `claim` has no solution. `guard`, the same lemma with something taken away,
    must have one. `code` names the functions of the model that the claim runs on symbols, by
    MODULE.FUNCTION below `model`; empty for arithmetic alone.
    """

    name: str
    sentence: str
    claim: Callable[[], list[Any]]
    guard: Callable[[], list[Any]]
    code: tuple[str, ...] = ()


class RuleProof(NamedTuple):
    """A question about a rule.

    Attributes:
        question: one sentence.
        answer: what follows if every lemma is proven.
        assumes: sentences that the answer relies on and no lemma shows.
        tested: what of the code no lemma is about.
        obligations: returns the lemmas, for blocks of so many tokens (None: of any size).
        counterexamples: by what a replay shows, a function that makes the scenario; at production
            scale, or as small as possible.
        block: the only block size that the lemmas are about; None for any.
    """

    question: str
    answer: str
    assumes: tuple[str, ...]
    tested: str
    obligations: Callable[[int | None], list[Obligation]]
    counterexamples: Mapping[str, Callable[[], Scenario | ScenarioPair | None]] = {}
    block: int | None = None


@dataclass(frozen=True)
class Discharged:
    """How an obligation ended.

    Attributes:
        status: "proven", "refuted", "unknown", or "unguarded": its guard holds as well, so the
            lemma says nothing.
        by: the solver that decided the claim.
        code: functions of the model that the claim runs, as in `Obligation`.
    """

    name: str
    sentence: str
    status: str
    seconds: float
    by: str
    code: tuple[str, ...] = ()


def discharge(obligations: Iterable[Obligation]) -> Iterator[Discharged]:
    for obligation in obligations:
        began = time.monotonic()
        answer, by = _decided(obligation.claim())
        status = {"unsat": "proven", "sat": "refuted", "unknown": "unknown"}[answer]
        if answer == "unsat":
            against, _ = _decided(obligation.guard())
            if against != "sat":
                status = "unguarded" if against == "unsat" else "unknown"
        spent = time.monotonic() - began
        of = obligation.code
        yield Discharged(obligation.name, obligation.sentence, status, spent, by, of)


def _decided(facts: list[Any]) -> tuple[Answer, str]:
    answer, _ = decide(facts, PATIENCE)
    if answer != "unknown":
        return answer, "Z3"
    return decide_by_cvc5(facts, PATIENCE), "cvc5"
