"""`schedproof search`: which engine answers, and whether what was asked makes sense."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ...model.errors import InputError
from ...model.systems import resolve_revision
from ...model.target import Target
from ...solver.exploration.exploration import ExploreOptions
from ...solver.spyre.admission_sequences import Setting
from ...solver.spyre.worst_case import OBJECTIVES
from ...solver.systems import proofs_of
from ...spec.catalogue import Rule, load, select
from ...spec.systems import SYSTEMS
from ..console import output
from ..console.exit_codes import BROKEN, CONFORMS, INCONCLUSIVE
from ..explore.choice import chosen_rules, chosen_scopes
from ..explore.explorer import MEMORY_MB, Budget
from ..explore.report import run_exploration
from ..targets.factory import opened
from ..targets.target_spec import parse_target
from . import vectorized, volumetric
from .other_rules import run_decided
from .sampling import run_samples
from .setting import JOIN, LIMIT, read_block, read_setting

ENGINES = ("z3", "hypothesis", "explore", "vectorized", "all")
ANY_RULE = ("hypothesis", "explore")  # they take any rule that has a predicate


class Question(NamedTuple):
    """What the command line asks for; None and empty where an option was not given."""

    rule: str
    engine: str
    revision: str | None
    changes: Sequence[str]
    prove: bool
    maximize: str | None
    target: str | None
    out: Path
    time_limit: float
    jobs: int = 1


def run(console: Console, question: Question) -> int:
    """Ask the engines; the exit code.

    Raises:
        InputError: options that mean nothing, or not together.
    """
    system = system_of(question.rule)
    [rule] = select(load(system), [question.rule])
    _check(question, system, rule)
    if question.engine == "vectorized":
        return _netted(console, question, rule)
    codes = []
    if question.engine in ("z3", "all"):
        with output.busy(console, "asking Z3"):
            codes.append(_solved(console, question, system))
    if question.engine in ("hypothesis", "all"):
        codes.append(_sampled(console, question, system, rule))
    if question.engine in ("explore", "all"):
        code = _explored(console, question, system, rule)
        # What holds below a small scope is no proof: it does not count against the others.
        codes.append(code if question.engine == "explore" or code == BROKEN else INCONCLUSIVE)
    if CONFORMS in codes and BROKEN in codes:
        console.print("the engines disagree: a proof and a counterexample; one of them is wrong")
        return BROKEN
    return next((code for code in (BROKEN, CONFORMS) if code in codes), INCONCLUSIVE)


def system_of(rule_id: str) -> str:
    """The system that the rule belongs to; for rules of every system the first one.

    Raises:
        CatalogueError: no system has such a rule.
    """
    catalogues = {system: load(system) for system in SYSTEMS}
    for system, rules in catalogues.items():
        if any(rule.id == rule_id for rule in rules):
            return system
    select([rule for rules in catalogues.values() for rule in rules], [rule_id])
    raise AssertionError(rule_id)


def _check(question: Question, system: str, rule: Rule) -> None:
    if question.engine not in ENGINES:
        raise InputError("--engine", f"{question.engine!r}; valid: {', '.join(ENGINES)}")
    if question.maximize is not None and question.maximize not in OBJECTIVES:
        raise InputError("--maximize", f"{question.maximize!r}; valid: {', '.join(OBJECTIVES)}")
    if question.prove and question.maximize:
        raise InputError("--maximize", "a proof has no worst case; valid: --prove or --maximize")
    if question.engine != "z3" and (question.prove or question.maximize):
        raise InputError("--engine", f"{question.engine} proves nothing; valid with --prove: z3")
    if question.engine == "vectorized":
        vectorized.check(rule.id)
        return
    encoded = [*([LIMIT, JOIN] if system == "spyre" else []), *proofs_of(system)]
    if question.engine not in ANY_RULE and rule.id not in encoded:
        valid = ", ".join(encoded)
        others = " or ".join(f"--engine {engine}" for engine in ANY_RULE)
        raise InputError("RULE", f"{rule.id} has no encoding; valid: {valid}, or {others}")
    if question.engine != "z3" and not rule.checked:
        raise InputError("RULE", f"{rule.id} has no predicate: {rule.unchecked or rule.planned}")
    if rule.id in proofs_of(system) and question.engine not in ANY_RULE:
        _check_decided(question)
    if question.target is not None and (question.prove or question.engine in ANY_RULE):
        raise InputError("--target", "replays a counterexample of Z3; valid: without this option")


def _check_decided(question: Question) -> None:
    """What is decided of rules beside SPY-R07 depends on the size of a block alone."""
    for option, given in (
        ("--revision", question.revision),
        ("--maximize", question.maximize),
        ("--target", question.target),
    ):
        if given is not None:
            raise InputError(option, f"{given!r}; valid with {question.rule}: without this option")
    for change in question.changes:
        if not change.startswith("block_size="):
            raise InputError("--set", f"{change!r}; valid with {question.rule}: block_size=TOKENS")


def _solved(console: Console, question: Question, system: str) -> int:
    changes = list(question.changes)
    decided = question.rule in proofs_of(system)
    any_block = (question.prove or decided) and "block_size=any" in changes
    if any_block:
        changes.remove("block_size=any")
    if decided:
        own = proofs_of(system)[question.rule].block
        if own is not None and question.changes not in ([], [f"block_size={own}"]):
            valid = f"block_size={own}, the lemmas of {question.rule} are about that alone"
            raise InputError("--set", f"{question.changes[-1]!r}; valid: {valid}")
        block = own if any_block or not changes else read_block(changes[-1])
        return run_decided(
            *(console, system, question.rule, block, question.prove, question.out),
            question.time_limit,
        )
    setting = read_setting(question.revision, changes)
    _check_setting(question, setting)
    with ExitStack() as stack:
        also = _also(console, question, stack)
        block = None if any_block else setting.block
        asking = volumetric.Asking(
            *(console, question.rule, setting, block, question.out, question.time_limit, also)
        )
        if question.prove:
            return volumetric.run_proof(asking)
        if question.maximize:
            return volumetric.run_worst(asking, question.maximize)  # type: ignore[arg-type]
        return volumetric.run_search(asking)


def _check_setting(question: Question, setting: Setting) -> None:
    if setting.pausing and question.rule == JOIN:
        valid = "pausing=false, where the formula is asked"
        raise InputError("--set", f"pausing=true with {JOIN}; valid: {valid}")
    if question.maximize and (setting.pauses or question.rule == JOIN):
        valid = f"{LIMIT}, and a revision that does not pause"
        raise InputError("--maximize", f"{question.maximize!r} of {question.rule}; valid: {valid}")
    if question.maximize == "waste" and setting.stale and not setting.interleave:
        # Of requests that join one right after the other each is asked about by another tkv.
        valid = "interleave=true, or a revision that remembers no tkv"
        raise InputError("--set", f"interleave=false with --maximize waste; valid: {valid}")


def _netted(console: Console, question: Question, rule: Rule) -> int:
    with ExitStack() as stack:
        also = _also(console, question, stack)
        return vectorized.run_vectorized(
            *(console, rule, question.revision, question.changes, also, question.out),
            question.time_limit,
        )


def _also(console: Console, question: Question, stack: ExitStack) -> tuple[str, Target] | None:
    """The target that a counterexample is replayed on besides the model, with its name."""
    if question.target is None:
        return None
    target = stack.enter_context(
        opened(parse_target(question.target), report=output.notice(console))
    )
    target.target.start("spyre", "sound", {})  # a target that is none says so at once
    return question.target, target.target


def _sampled(console: Console, question: Question, system: str, rule: Rule) -> int:
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
    small = [replace(one, requests=2) for one in scopes]  # most faults show with two requests
    # Beside two other engines, one small scope: what takes minutes is asked for by name.
    chosen = small[:1] if question.engine == "all" else [*small, *scopes]
    asked = [ExploreOptions(revision, one, first_only=True, formula=formula) for one in chosen]
    budget = Budget(question.time_limit, MEMORY_MB)
    return run_exploration(
        *(console, asked, [checked], True, question.jobs, budget, question.out, None, True)
    )


def _formula(question: Question, system: str) -> str | None:
    """Spyre's volumetric check that `--set formula=NAME` asks for.

    Raises:
        InputError: something else is set.
    """
    formula = None
    for change in question.changes:
        key, _, value = change.partition("=")
        if system != "spyre":
            raise InputError("--set", f"{change!r}: not with this engine; valid: nothing")
        if key != "formula":
            raise InputError("--set", f"{change!r}: not with this engine; valid: formula=NAME")
        read_setting(None, [change])
        formula = value
    return formula
