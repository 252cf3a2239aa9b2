"""Load a user's own rules: a Python file with a list RULES of `OwnRule`.

    from schedproof import OwnRule

    RULES = [
        OwnRule(
            id="OUR-R01",
            title="two at most",
            statement="At most two requests run.",
            needs=["running"],
            broken=lambda history, step: "three run" if len(step.running) > 2 else None,
            witness="Two requests run.",
            exercised=lambda history, step: len(step.running) == 2,
        )
    ]

The file is Python code and is executed. A rule must depend on its arguments alone, so that it
judges equal runs equally.
"""

import re
import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.observation import Step
from ...model.own_code import EndlessCode, limited
from ...properties.history.run_history import RunHistory
from ...properties.rules.predicate import Predicate, RuleFault
from ...spec import systems
from ...spec.catalogue import FIELDS, Rule, load
from ..console.output import one_line
from ..files.scenario_file import FileError

ID = re.compile(r"[A-Z][A-Z0-9]*-[A-Z]\d+")
RuleFunction = Callable[[RunHistory, Step], Any]


@dataclass(frozen=True)
class OwnRule:
    """A rule of the user.

    Attributes:
        id: an id such as OUR-R01 that no rule of schedproof has.
        title, statement: the rule in a few words, and in a sentence.
        needs: fields of the step without which the rule cannot be judged.
        broken: returns None, or a sentence that says how the step breaks the rule, with the
            numbers. The history that it receives does not include the step yet.
        witness: a sentence that says when the rule is exercised.
        exercised: returns whether the step exercises the rule.
        source: where the rule comes from.
    """

    id: str
    title: str
    statement: str
    broken: RuleFunction
    exercised: RuleFunction
    witness: str
    needs: Sequence[str] = ()
    source: str = "a rule of the user's"


def use_rules(path: Path | None) -> None:
    """Load the rules of a file and judge by them from now on; None unloads them. Raise FileError if
    the file cannot be run, or has no rules."""
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
        names = limited(runpy.run_path, str(path))
    except (Exception, SystemExit, EndlessCode) as error:  # the user's code may raise anything
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(path, error)
        where = f", line {line}" if line else ""
        raise FileError(f"{path}: {type(error).__name__}: {error}{where}") from None
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
    if unknown := [name for name in own.needs if name not in FIELDS]:
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
        *(own.id, title, statement, source, "safety", ("*",), tuple(own.needs)),
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
    """Wrap a function of a user's rule. An exception or an invalid answer is then reported as a
    fault of the rule, not of the target."""

    def checked(history: RunHistory, step: Step) -> Any:
        try:
            answer = limited(function, history, step)
        except (Exception, SystemExit, EndlessCode) as error:
            line = _line_in(path, error)
            where = f", line {line}" if line else ""
            what = f"{type(error).__name__}: {error}{where}"
            raise RuleFault(f"{path}: {rule} raised {what} (step {history.step})") from None
        if not is_answer(answer):
            valid = "None or a sentence from broken, True or False from exercised"
            raise RuleFault(f"{path}: {rule} answers {answer!r:.60}; valid: {valid}")
        return answer

    return checked


def _line_in(path: Path, error: BaseException) -> int | None:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
