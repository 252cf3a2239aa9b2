"""Select the rules to judge according to `--rule` and `--exclude`, and load the user's own rules.

A file of own rules is Python code that defines RULES, a list of `OwnRule`. Loading the file
executes the code. A rule may depend only on its arguments, so that identical runs get the same
verdict.
"""

import re
import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ...model.errors import InputError
from ...model.observation import REQUIRED as ALWAYS_SHOWN
from ...model.observation import Step
from ...model.own_code import call_limited, describe_exception
from ...model.scenario import Scenario
from ...model.systems import make_model, revisions_of
from ...properties.history.run_history import RunHistory
from ...properties.rules.predicate import Predicate, RuleFault
from ...properties.rules.registry import LOCKSTEP, NEVER_CRASHES, NEVER_HANGS, applies
from ...spec import systems
from ...spec.catalogue import FIELDS, Rule, load, selected
from ..console.option_checks import option, rule_words
from ..console.output import one_line
from ..files.scenario_file import FileError
from ..targets.target_spec import TargetSpec

NO_LOCKSTEP = "none"


def rules_named(catalogue: Sequence[Rule], words: Sequence[str]) -> dict[str, bool]:
    """Map each rule id that --rule selects to whether the user named it in full."""
    return selected(catalogue, rule_words("--rule", words))


def rules_to_judge(
    system: str,
    words: Sequence[str] | None,
    revision: str,
    target: TargetSpec,
    compare_with: str | None = None,
    exclude: Sequence[str] = (),
) -> Sequence[Rule]:
    """Return the rules to judge: the rules that --rule selects (such as A,B or ALL-*), or the whole
    catalogue; in both cases, without the excluded rules.

    `compare_with` is the revision whose model runs alongside the target, or "none". By default it
    is `revision`, if rule ALL-R07 (lockstep) applies to it. Raise InputError if a rule that the
    user named cannot be checked here.
    """
    catalogue = load(system, revision)
    named = (
        rules_named(catalogue, words)
        if words
        else dict.fromkeys([known.id for known in catalogue], False)
    )
    left_out = excluded_ids(catalogue, exclude)
    chosen: Sequence[Rule] = [rule for rule in catalogue if rule.id in named]
    if compare_with == NO_LOCKSTEP and named.get(LOCKSTEP):
        raise InputError("--rule", f"{LOCKSTEP} contradicts --compare-with {NO_LOCKSTEP}")
    if compare_with is not None:
        chosen = _compared_with(compare_with, system, chosen)
    for rule in chosen:
        if not named[rule.id]:
            continue
        if rule.id in left_out:
            raise InputError(
                "--exclude",
                f"{rule.id} is also named by --rule; valid: name it in one of the two options",
            )
        check_applies(rule, revision)
        if _is_itself(rule, target):
            raise InputError(
                "--rule", f"{rule.id} compares a target with the model; valid: any other target"
            )
    return [
        rule
        for rule in chosen
        if rule.id not in left_out
        and (not words or named[rule.id] or _can_be_judged(rule, revision, target))
    ]


def lockstep_revision(
    scenario: Scenario,
    words: Sequence[str] | None,
    target: TargetSpec,
    compare_with: str | None,
    report: Callable[[str], None],
) -> str | None:
    """Return the revision whose model a scenario is compared with: `compare_with`, or "none".

    If the user did not choose, and the scenario expects another rule to be broken, return "none"
    and pass a line about it to `report`. Otherwise, the first difference from the model would end
    the run too early.
    """
    expected = (scenario.expect and scenario.expect.violates) or (LOCKSTEP,)
    if compare_with or words or LOCKSTEP in expected or target.is_plain_model:
        return compare_with
    report(f"not compared with a model: the scenario expects {', '.join(expected)} to be broken")
    return NO_LOCKSTEP


def excluded_ids(catalogue: Sequence[Rule], words: Sequence[str]) -> frozenset[str]:
    """Return the ids that --exclude selects; raise InputError if a rule cannot be excluded."""
    ids = frozenset(selected(catalogue, rule_words("--exclude", words)))
    if always := sorted(ids & {NEVER_CRASHES, NEVER_HANGS}):
        raise InputError(
            "--exclude",
            f"{always[0]}: cannot be excluded, because a crash or a hang ends the run; "
            "valid: any other rule",
        )
    return ids


def _can_be_judged(rule: Rule, revision: str, target: TargetSpec) -> bool:
    return applies(rule, revision) and not _is_itself(rule, target)


def _is_itself(rule: Rule, target: TargetSpec) -> bool:
    return rule.id == LOCKSTEP and target.is_plain_model and not rule.beside


def _compared_with(compare_with: str, system: str, rules: Sequence[Rule]) -> Sequence[Rule]:
    if compare_with == NO_LOCKSTEP:
        return [rule for rule in rules if rule.id != LOCKSTEP]
    with option("--compare-with"):
        if all(rule.id != LOCKSTEP for rule in load(system)):
            raise InputError(
                "--compare-with",
                f"{compare_with!r:.60}; system {system} has no model to compare with; "
                f"valid: {NO_LOCKSTEP}",
            )
        if compare_with not in revisions_of(system):
            valid = ", ".join((*revisions_of(system), NO_LOCKSTEP))
            raise InputError("--compare-with", f"{compare_with!r:.60}; valid: {valid}")
        make_model(system, compare_with, {})
    return [
        replace(rule, revisions=("*",), beside=compare_with) if rule.id == LOCKSTEP else rule
        for rule in rules
    ]


def check_applies(rule: Rule, revision: str) -> None:
    """Raise InputError unless the rule belongs to the revision."""
    if not applies(rule, revision):
        raise InputError(
            "--rule",
            f"{rule.id} does not apply to revision {revision}; "
            f"it applies to {', '.join(rule.revisions)}",
        )


ID = re.compile(r"[A-Z][A-Z0-9]*-[A-Z]\d+")
RuleFunction = Callable[[RunHistory, Step], Any]


@dataclass(frozen=True)
class OwnRule:
    """A rule of the user.

    Attributes:
        id: an id such as OUR-R01 that no rule of schedproof has.
        title: the rule in a few words; `statement` says it in a full sentence.
        needs: the step fields without which the rule cannot be judged.
        broken: a function of history and step. It returns a sentence with numbers that says how the
            step breaks the rule, or None if the step does not. The history ends before the step.
        witness: a sentence that says when the rule is exercised.
        exercised: a function of history and step that returns whether the step exercises the rule.
        source: where the rule comes from.
    """

    id: str
    title: str
    statement: str
    broken: RuleFunction
    exercised: RuleFunction
    witness: str
    needs: Sequence[str] = ()
    source: str = "a user's own rule"


def use_rules(path: Path | None) -> None:
    """Load the rules in a file and apply them from now on. With None, unload them."""
    systems.remove_rules()
    if path is None:
        return
    known = {rule.id for system in systems.SYSTEMS for rule in load(system)}
    own: list[systems.OwnRule] = []
    for number, own_rule in enumerate(_read(path)):
        own.append(_rule(path, number, own_rule, known))
        known.add(own_rule.id)
    systems.add_rules(own)


def _read(path: Path) -> list[Any]:
    if path.suffix != ".py" or not path.is_file():
        problem = "no such file" if not path.exists() else "not a Python file"
        raise FileError(f"{path}: {problem}; valid: a .py file with RULES")
    try:
        names = call_limited(runpy.run_path, str(path))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code may raise any exception
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(path, error)
        where = f", line {line}" if line else ""
        raise FileError(f"{path}: {describe_exception(error)}{where}") from None
    rules = names.get("RULES")
    if not isinstance(rules, list | tuple) or not rules:
        raise FileError(f"{path}: RULES is {rules!r:.60}; valid: a list of schedproof.OwnRule")
    return [*rules]


def _rule(path: Path, number: int, own: Any, known: set[str]) -> systems.OwnRule:
    place = f"{path}: RULES[{number}]"
    if not isinstance(own, OwnRule):
        raise FileError(f"{place}: {own!r:.60}; valid: a schedproof.OwnRule")
    place = f"{place} ({own.id!r:.40})"
    if not isinstance(own.id, str) or not ID.fullmatch(own.id):
        raise FileError(
            f"{place}.id; valid: letters, a dash, a letter and a number, such as OUR-R01"
        )
    if own.id in known:
        raise FileError(f"{place}.id: this id is taken; valid: a new id")
    for name in ("title", "statement", "witness", "source"):
        if not isinstance(getattr(own, name), str) or not getattr(own, name).strip():
            raise FileError(f"{place}.{name}: {getattr(own, name)!r:.60}; valid: words")
    if not isinstance(own.needs, list | tuple):
        problem = f"{own.needs!r:.60}; valid: a list of {', '.join(FIELDS)}"
        raise FileError(f"{place}.needs: {problem}")
    needs = [name for name in own.needs if name not in ALWAYS_SHOWN]
    if unknown := [name for name in needs if name not in FIELDS]:
        raise FileError(f"{place}.needs: {unknown[0]!r:.60}; valid: {', '.join(FIELDS)}")
    for name in ("broken", "exercised"):
        if not callable(getattr(own, name)):
            what = f"{getattr(own, name)!r:.60}; valid: a function of history and step"
            raise FileError(f"{place}.{name}: {what}")
    title, statement, source, witness = (
        " ".join(one_line(text).split())
        for text in (own.title, own.statement, own.source, own.witness)
    )
    rule = Rule(
        *(own.id, title, statement, source, "safety", ("*",), tuple(needs)),
        witness=witness,
        engines=("hypothesis", "corpus"),
    )
    words = _guard(
        path, own.id, own.broken, lambda answer: answer is None or isinstance(answer, str)
    )
    exercised = _guard(path, own.id, own.exercised, lambda answer: isinstance(answer, bool))
    return systems.OwnRule(rule, Predicate(words, exercised))


def _guard(
    path: Path, rule: str, function: RuleFunction, is_answer: Callable[[Any], bool]
) -> RuleFunction:
    """Wrap a function of a user's rule so that its errors are blamed on the rule, not on the
    target."""

    def checked(history: RunHistory, step: Step) -> Any:
        before = _shared_state(history, step)
        try:
            answer = call_limited(function, history, step)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            line = _line_in(path, error)
            where = f", line {line}" if line else ""
            what = f"{rule} raised {describe_exception(error)}{where}"
            raise RuleFault(f"{path}: {what} (step {history.step})") from None
        if _shared_state(history, step) != before:
            what = f"{path}: {rule} changes the history or the step (step {history.step})"
            raise RuleFault(f"{what}; valid: a rule that only reads them")
        if not is_answer(answer):
            valid = "None or a sentence from broken, True or False from exercised"
            raise RuleFault(f"{path}: {rule} returns {answer!r:.60}; valid: {valid}")
        return answer

    return checked


def _shared_state(history: RunHistory, step: Step) -> bytes:
    """Return a copy of the state that all rules read, to detect whether a user's rule changes it.
    The requests' own state is left out, because copying it in every step would take too long."""
    return msgspec.json.encode((dict(history.config), [*history.live], step))


def _line_in(path: Path, error: BaseException) -> int | None:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
