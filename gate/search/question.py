"""`schedproof search`: check that the options are consistent, and choose the engine.

A system may decide some rules in its own way, without lemmas. It then declares `OwnQuestions`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ...model.errors import InputError
from ...model.systems import resolve_revision
from ...solver.exploration.exploration import ExploreOptions
from ...solver.systems import proofs_of
from ...spec.catalogue import Rule, load, select
from ...spec.systems import SYSTEMS, part
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..console.option_checks import check_choice
from ..explore.explorer import MEMORY_MB, Budget, chosen_rules, chosen_scopes
from ..explore.report import run_exploration
from ..judging.context import GateOptions
from ..judging.deviations import Deviations
from ..judging.judge import run_gate
from ..judging.verdict import Concluded, Event, Found, Progress
from ..processes.work_process import TimeLimit
from ..reports.terminal import Terminal
from ..targets.target_spec import model_spec
from .proofs import check_certificate, read_block, run_proofs


class Question(NamedTuple):
    """The options of the command line. An option that was not given is None or empty."""

    rule: str
    engine: str
    revision: str | None
    changes: Sequence[str]
    prove: bool
    maximize: str | None
    target: str | None
    out: Path
    time_limit: TimeLimit
    jobs: int = 1
    certificate: Path | None = None


@dataclass(frozen=True)
class OwnQuestions:
    """Questions that a system answers in its own way, declared as `System.questions`.

    `answer` decides the `rules` with Z3, prints the answer, and returns the exit code. `objectives`
    lists the worst cases that `--maximize` can find. `read_formula` checks the name of a formula.
    """

    rules: tuple[str, ...]
    objectives: tuple[str, ...]
    read_formula: Callable[[str], str]
    answer: Callable[[Console, Question], int]
    vectorized_rules: tuple[str, ...] = ()
    answer_vectorized: Callable[[Console, Rule, Question], int] | None = None


def questions_of(system: str) -> OwnQuestions | None:
    questions: OwnQuestions | None = part(system, "questions")
    return questions


def all_questions() -> Mapping[str, OwnQuestions]:
    by_system = {system: questions_of(system) for system in SYSTEMS}
    return {system: questions for system, questions in by_system.items() if questions is not None}


ENGINES = ("z3", "hypothesis", "explore", "vectorized", "all")
ANY_RULE = ("hypothesis", "explore")  # engines that accept any rule that has a predicate


def run(console: Console, question: Question) -> int:
    """Answer the question with the chosen engines, and return the exit code."""
    system = system_of(question.rule)
    [rule] = select(load(system), [question.rule])
    own = questions_of(system)
    _check(question, system, rule, own)
    check_certificate(question.certificate, question.prove)
    if question.engine == "vectorized":
        assert own is not None, question.rule
        assert own.answer_vectorized is not None, question.rule
        return own.answer_vectorized(console, rule, question)
    codes, whole, number = [], question.time_limit, 1 if question.engine != "all" else 3
    if question.engine in ("z3", "all"):
        with output.busy(console, "asking Z3"):
            question = question._replace(time_limit=whole.share(number))
            codes.append(_solve(console, question, system, own))
    if question.engine in ("hypothesis", "all"):
        question = question._replace(time_limit=whole.share(min(number, 2)))
        codes.append(_sample(console, question, system, rule))
    question = question._replace(time_limit=whole)
    if question.engine in ("explore", "all"):
        code = _explored(console, question, system, rule)
        # Not an answer by itself, because a rule that holds in a small scope is not proven.
        codes.append(code if question.engine == "explore" or code == BROKEN else INCONCLUSIVE)
    if CONFORMS in codes and BROKEN in codes:
        console.print(
            "the engines disagree: one has a proof, another a counterexample; one of them is wrong"
        )
        return BROKEN
    return next((code for code in (BROKEN, CONFORMS) if code in codes), INCONCLUSIVE)


def system_of(rule_id: str) -> str:
    """Return the system to which a rule belongs. For a rule of all systems, return the first
    system."""
    catalogues = {system: load(system) for system in SYSTEMS}
    for system, rules in catalogues.items():
        if any(rule.id == rule_id for rule in rules):
            return system
    select([rule for rules in catalogues.values() for rule in rules], [rule_id])
    raise AssertionError(rule_id)


def _check(question: Question, system: str, rule: Rule, own: OwnQuestions | None) -> None:
    check_choice("--engine", question.engine, ENGINES)
    values: dict[str, str] = {}
    for change in question.changes:
        key = change.partition("=")[0]
        if values.setdefault(key, change) != change:
            raise InputError("--param", f"{change!r:.80}: {key} is given twice")
    objectives = [name for known in all_questions().values() for name in known.objectives]
    if question.maximize is not None:
        check_choice("--maximize", question.maximize, objectives)
    if question.prove and question.maximize:
        raise InputError("--maximize", "a proof finds no worst case; valid: --prove or --maximize")
    if question.engine != "z3" and (question.prove or question.maximize):
        raise InputError(
            "--engine", f"{question.engine} cannot prove anything; valid with --prove: z3"
        )
    if question.engine == "vectorized":
        judged = [name for known in all_questions().values() for name in known.vectorized_rules]
        if rule.id not in judged or own is None:
            valid = ", ".join(judged)
            raise InputError(
                "RULE", f"{rule.id}: the vectorized model cannot judge it; valid: {valid}"
            )
        return
    proofs = proofs_of(system)
    encoded = [*(own.rules if own is not None else ()), *proofs]
    if question.engine not in ANY_RULE and rule.id not in encoded:
        others = " or ".join(f"--engine {engine}" for engine in ANY_RULE)
        valid = ", ".join([*encoded, others])
        raise InputError("RULE", f"{rule.id} has no encoding for Z3; valid: {valid}")
    if question.engine != "z3" and not rule.checked:
        raise InputError("RULE", f"{rule.id} has no predicate: {rule.unchecked or rule.planned}")
    if rule.id in proofs and question.engine not in ANY_RULE:
        _check_proof_options(question)
    if question.target is not None and (question.prove or question.engine in ANY_RULE):
        raise InputError(
            "--target",
            "only counterexamples found by Z3 are replayed; omit this option, or use --engine z3",
        )


def _check_proof_options(question: Question) -> None:
    for option, given in (
        ("--revision", question.revision),
        ("--maximize", question.maximize),
        ("--target", question.target),
    ):
        if given is not None:
            raise InputError(
                option, f"{given!r}; does not apply to {question.rule}; omit this option"
            )
    for change in question.changes:
        if not change.startswith("block_size="):
            raise InputError(
                "--param", f"{change!r}; valid with {question.rule}: block_size=TOKENS"
            )


def _solve(console: Console, question: Question, system: str, own: OwnQuestions | None) -> int:
    proof = proofs_of(system).get(question.rule)
    if proof is None:
        assert own is not None, question.rule
        return own.answer(console, question)
    if proof.block is not None and question.changes not in ([], [f"block_size={proof.block}"]):
        only = f"the lemmas of {question.rule} cover only this size"
        valid = f"block_size={proof.block}, because {only}"
        raise InputError("--param", f"{question.changes[-1]!r}; valid: {valid}")
    sizes = [change for change in question.changes if change != "block_size=any"]
    any_block = len(sizes) < len(question.changes) or not sizes
    block = proof.block if any_block else read_block(sizes[-1])
    return run_proofs(
        *(console, system, question.rule, block, question.prove, question.out),
        *(question.time_limit, question.certificate),
    )


def _sample(console: Console, question: Question, system: str, rule: Rule) -> int:
    revision = resolve_revision(system, question.revision)
    return run_samples(
        *(console, system, rule, revision, _formula(question, system), question.out),
        question.time_limit,
        question.jobs,
    )


def _explored(console: Console, question: Question, system: str, rule: Rule) -> int:
    revision = resolve_revision(system, question.revision)
    [checked] = chosen_rules(load(system), [rule.id], revision)
    formula = _formula(question, system)
    scopes = chosen_scopes(None, system, revision)
    # Two requests reveal most faults.
    small = [replace(scope, requests=2) for scope in scopes]
    # With `all`, explore only one small scope. The other scopes take minutes; `--engine explore`
    # explores them.
    chosen = small[:1] if question.engine == "all" else [*small, *scopes]
    parts = [ExploreOptions(revision, scope, first_only=True, formula=formula) for scope in chosen]
    budget = Budget(question.time_limit.left, MEMORY_MB)
    return run_exploration(
        *(console, parts, [checked], True, question.jobs, budget, question.out, None, True)
    )


def _formula(question: Question, system: str) -> str | None:
    formula, own = None, questions_of(system)
    for change in question.changes:
        key, _, value = change.partition("=")
        if own is None:
            raise InputError(
                "--param", f"{change!r}: this engine takes no parameters; omit --param"
            )
        if key != "formula":
            raise InputError(
                "--param",
                f"{change!r}: this engine does not take this parameter; valid: formula=NAME",
            )
        formula = own.read_formula(value)
    return formula


def run_samples(
    console: Console,
    system: str,
    rule: Rule,
    revision: str,
    formula: str | None,
    out: Path,
    time_limit: TimeLimit,
    jobs: int,
) -> int:
    """Run random scenarios on the model until one of them breaks the rule. The result does not
    depend on `jobs`."""
    spec = model_spec(formula)
    terminal = Terminal(console, load(system))
    findings: list[Found] = []

    def report_in_time(event: Event) -> None:
        if isinstance(event, Concluded):
            return  # not reported, because the gate's verdict would only repeat the answer
        if isinstance(event, Found):
            findings.append(event)  # decided at the end, because not every finding counts
            return
        terminal(event)
        if isinstance(event, Progress) and not time_limit.left:
            raise KeyboardInterrupt  # ends the search like Ctrl-C; the findings so far are kept

    options = GateOptions(
        spec=spec,
        system=system,
        revision=revision,
        rules=[rule],
        chosen=True,
        max_failures=1,
        first_only=True,
        jobs=jobs,
        out=out,
    )
    try:
        verdict, results = run_gate(options, Deviations(), report_in_time)
        for event in findings:
            if event.finding in verdict.findings:
                terminal.print_finding(event)
    finally:
        terminal.close()
    if verdict.findings:
        return BROKEN
    runs = sum(engine.runs for engine in verdict.engines)
    ended = "the time limit was reached" if results.interrupted else "no more were requested"
    output.say(
        console,
        f"inconclusive: none of the {runs} runs breaks {rule.id}, which was exercised in "
        f"{results.exercised[rule.id]} steps; {ended}",
    )
    return INCONCLUSIVE
