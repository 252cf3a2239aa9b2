"""Questions to a solver, obligations (lemmas with their guards), and proofs of rules."""

import importlib.util
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal, NamedTuple

import z3

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.systems import reference
from ...spec.systems import SYSTEMS
from .execution import UndecidedError
from .memory import Memory


class ScenarioPair(NamedTuple):
    """The same requests in two configurations. The second run has more preemptions."""

    few: Scenario
    more: Scenario


Answer = Literal["sat", "unsat", "unknown"]
# Resource units of Z3 for one claim; if they do not suffice, cvc5 gets the claim. Z3 counts its own
# steps (`rlimit`), so the load of the machine does not matter. An idle core takes 4 to 5 million a
# second. The hardest lemmas that are proven need 11 million (`walk_counts_every_request_any`) and 6
# million (`check_compares_each_end_4`).
UNITS = 60_000_000
PATIENCE = 300.0  # seconds, in case Z3 does long work that it does not count
SECOND = 30.0  # seconds of cvc5 for one claim


def decide(
    facts: list[Any], seconds: float | None = None, units: int | None = None
) -> tuple[Answer, z3.ModelRef | None]:
    """Return whether all facts can hold together and, if so, a solution.

    The answer is "unknown" after `seconds` of wall-clock time, or after `units` of Z3's own
    resource count (its `rlimit`, about one for each elementary step). With a limit in units, the
    answer is the same on every machine, however busy it is; with a limit in seconds, it is not.
    None means no limit.

    The question runs in a new Z3 context. Otherwise the answer within a limit would depend on the
    order in which terms were made, and therefore on earlier questions.
    """
    shared = z3.Solver()
    shared.add(facts)
    alone = z3.Context()
    solver = z3.Solver(ctx=alone)
    solver.add(*shared.assertions().translate(alone))
    if seconds is not None:
        solver.set("timeout", int(1000 * seconds))
    if units is not None:
        solver.set("rlimit", units)
    answer = solver.check()
    if answer == z3.sat:
        return "sat", solver.model().translate(z3.main_ctx())
    return ("unsat" if answer == z3.unsat else "unknown"), None


def decide_by_cvc5(facts: list[Any], seconds: float) -> Answer:
    """Return cvc5's answer, or "unknown" if cvc5 is not installed."""
    if importlib.util.find_spec("cvc5") is None:
        return "unknown"
    return ask_cvc5(in_smt_lib(facts), seconds)[0]


def in_smt_lib(facts: list[Any]) -> str:
    """Return the facts as an SMT-LIB script without `(check-sat)`."""
    question = z3.Solver()
    question.add(facts)
    text: str = question.sexpr()
    if re.search(r" (and|or)\)", text):  # SMT-LIB allows no empty conjunction
        question.reset()
        question.add([z3.simplify(fact) for fact in facts])
        text = question.sexpr()
    return f"(set-logic {logic_of(question.assertions())})\n{text}\n"


def logic_of(facts: Iterable[Any]) -> str:
    """Return the smallest logic of SMT-LIB that contains all facts. With a linear logic, cvc5
    sometimes answers in less than a second where it gives up with a nonlinear one."""
    seen, waiting = set[int](), [*facts]
    functions, products = "", "L"
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        parts = term.children()
        waiting += parts
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED and parts:
            functions = "UF"
        by_symbol = (z3.is_idiv(term) or z3.is_mod(term)) and not z3.is_int_value(parts[1])
        of_symbols = z3.is_mul(term) and sum(not z3.is_int_value(part) for part in parts) > 1
        if by_symbol or of_symbols:
            products = "N"
    return f"QF_{functions}{products}IA"


# Ask for proofs in which every step can be checked.
WITH_PROOF = {
    "produce-proofs": "true",
    "proof-format-mode": "alethe",
    "proof-granularity": "dsl-rewrite",
}


def ask_cvc5(text: str, seconds: float, *, prove: bool = False) -> tuple[Answer, str]:
    """Return cvc5's answer and, with `prove`, its Alethe proof of "unsat"."""
    import cvc5

    solver = cvc5.Solver()
    solver.setOption("tlimit-per", str(int(1000 * seconds)))
    for name, value in (WITH_PROOF if prove else {"nl-ext-tplanes": "true"}).items():
        solver.setOption(name, value)
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    while True:
        command = parser.nextCommand()
        if command.isNull():
            break
        command.invoke(solver, parser.getSymbolManager())
    result = solver.checkSat()
    if not result.isUnsat():
        return "sat" if result.isSat() else "unknown", ""
    if not prove:
        return "unsat", ""
    [proof] = solver.getProof()
    written = solver.proofToString(proof, cvc5.ProofFormat.ALETHE)
    return "unsat", written if isinstance(written, str) else written.decode()


@dataclass(frozen=True)
class Obligation:
    """A lemma and its guard.

    `claim` consists of facts that contradict the lemma, so `sentence` holds if they have no
    solution. `guard` is the claim with one premise weakened. It must have a solution; otherwise,
    the lemma would say nothing. `code` names the functions of the model that the claim runs on
    symbols, as MODULE.FUNCTION in the package `model`. It is empty for pure arithmetic.
    """

    name: str
    sentence: str
    claim: Callable[[], list[Any]]
    guard: Callable[[], list[Any]]
    code: tuple[str, ...] = ()


def lemma(
    sentence: str, *code: str, name: str = ""
) -> Callable[[Callable[..., list[Any]]], Callable[..., Obligation]]:
    """Decorate a claim, so that it returns its lemma. The lemma is named after the claim, or `name`
    if given.

    The last argument of a claim is 0 for the lemma and 1 for the guard, in which the claim weakens
    a premise. The decorated function takes the other arguments, which `sentence` and `name` may
    contain in braces. For `code`, see `Obligation`.
    """

    def decorate(claim: Callable[..., list[Any]]) -> Callable[..., Obligation]:
        def make(*arguments: Any) -> Obligation:
            given = dict(zip(signature(claim).parameters, arguments, strict=False))
            return Obligation(
                (name or claim.__name__).format(**given),
                sentence.format(**given),
                partial(claim, *arguments, 0),
                partial(claim, *arguments, 1),
                code,
            )

        return make

    return decorate


# Maps a block size in tokens (None: any size) to the lemmas.
Lemmas = Callable[[int | None], list[Obligation]]


def combine(*lemmas: Lemmas) -> Lemmas:
    return lambda block: [lemma for each in lemmas for lemma in each(block)]


class RuleProof(NamedTuple):
    """A question about a rule, and the lemmas that answer it.

    Attributes:
        question: the question in one sentence.
        answer: the answer, if every lemma is proven.
        assumes: the assumptions that no lemma proves, one sentence each.
        tested: the parts of the code that no lemma covers, and that only tests check.
        obligations: returns the lemmas for a block size in tokens; None means any size.
        counterexamples: functions that make scenarios, at production scale or as small as possible.
            Each key says what a replay of the scenario shows.
        block: the only block size that the lemmas cover; None for any.
    """

    question: str
    answer: str
    assumes: tuple[str, ...]
    tested: str
    obligations: Lemmas
    counterexamples: Mapping[str, Callable[[], Scenario | ScenarioPair | None]] = {}
    block: int | None = None


class Certified(NamedTuple):
    """The second solver's answers to a claim and its guard. `holes` is the number of unjustified
    steps in the solver's proof, or None if there is no proof."""

    claim: Answer
    guard: Answer
    holes: int | None


@dataclass(frozen=True)
class Discharged:
    """The result of an obligation.

    Attributes:
        status: "proven", "refuted", "unknown", or "unguarded", which means that the guard holds as
            well, so the lemma says nothing.
        by: the solver that decided the claim, or "none" if the code could not be followed.
        code: functions of the model that the claim runs, as in `Obligation`.
        certified: the second solver's answers, if a certificate is written.
    """

    name: str
    sentence: str
    status: str
    seconds: float
    by: str
    code: tuple[str, ...] = ()
    certified: Certified | None = None


def import_models() -> None:
    """Import the models of all systems, in case one of them changes functions of another. Call this
    before the code of a model runs on symbols."""
    for system in SYSTEMS:
        reference(system)


def discharge(
    obligations: Iterable[Obligation], write: Callable[[str, str], None] | None = None
) -> Iterator[Discharged]:
    """Decide each lemma and its guard. `write` receives the name and the text of each certificate
    file."""
    for obligation in obligations:
        began = time.monotonic()
        named = obligation.name, obligation.sentence
        memory = Memory()
        try:
            claim = obligation.claim()
            memory.check()
        except InputError:  # about a formula of the user's
            raise
        except Exception as why:  # of code that does not run on symbols
            of = why if isinstance(why, UndecidedError) else f"raises {type(why).__name__}: {why}"
            named = obligation.name, f"{obligation.sentence} (undecided: the code {of})"
            yield Discharged(*named, "unknown", time.monotonic() - began, "none", obligation.code)
            continue
        answer, by, _ = _decided(claim)
        status = {"unsat": "proven", "sat": "refuted", "unknown": "unknown"}[answer]
        certified, guard = None, None
        if answer == "unsat":
            guard = obligation.guard()
            against, _, solution = _decided(guard)
            guard += values(solution)
            if against != "sat":
                status = "unguarded" if against == "unsat" else "unknown"
        spent = time.monotonic() - began
        if write is not None:
            certified = certify(obligation, claim, guard, write)
        yield Discharged(*named, status, spent, by, obligation.code, certified)


def certify(
    obligation: Obligation,
    claim: list[Any],
    guard: list[Any] | None,
    write: Callable[[str, str], None],
) -> Certified:
    """Write the claim, its guard (None if undecided) and the second solver's proof of the claim.

    `guard` contains the values of its solution, so the second solver only has to confirm them.
    """
    name, end = obligation.name, "(check-sat)\n"
    about = "".join(f"; {line}\n" for line in textwrap.wrap(obligation.sentence, 96))
    text = about + in_smt_lib(claim)
    write(f"{name}.smt2", f"; expected: unsat\n{text}{end}")
    second: Answer = "unknown"
    if guard is not None:
        weaker = f"; expected: sat (the guard of {name})\n{in_smt_lib(guard)}{end}"
        write(f"{name}.guard.smt2", weaker)
        second, _ = ask_cvc5(in_smt_lib(guard), SECOND)
    answer, proof = ask_cvc5(text, SECOND, prove=True)
    if proof:
        write(f"{name}.alethe", proof)
    return Certified(answer, second, proof.count(":rule hole") if proof else None)


def _decided(facts: list[Any]) -> tuple[Answer, str, z3.ModelRef | None]:
    answer, solution = decide(facts, PATIENCE, UNITS)
    if answer != "unknown":
        return answer, "Z3", solution
    return decide_by_cvc5(facts, SECOND), "cvc5", None


def values(solution: z3.ModelRef | None) -> list[Any]:
    """Return the value of each constant of a solution as a fact."""
    if solution is None:
        return []
    return [of() == solution[of] for of in solution.decls() if of.arity() == 0]
