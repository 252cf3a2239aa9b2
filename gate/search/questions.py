"""The interface of a system's own questions: rules that `search` decides by more than lemmas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ...spec.catalogue import Rule
from ...spec.systems import SYSTEMS, part


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


@dataclass(frozen=True)
class OwnQuestions:
    """The descriptor part `System.questions`.

    Attributes:
        rules: rules that Z3 decides by a question of the system.
        objectives: worst cases that `--maximize` asks for.
        read_formula: checks the name in `--set formula=NAME`, or raises InputError.
        answer: asks Z3, prints the answer and returns the exit code.
        vectorized_rules: rules that the vectorized model can judge.
        answer_vectorized: the same with the vectorized model.
    """

    rules: tuple[str, ...]
    objectives: tuple[str, ...]
    read_formula: Callable[[str], str]
    answer: Callable[[Console, Question], int]
    vectorized_rules: tuple[str, ...] = ()
    answer_vectorized: Callable[[Console, Rule, Question], int] | None = None


def questions_of(system: str) -> OwnQuestions | None:
    """Return the system's own questions, None for none."""
    questions: OwnQuestions | None = part(system, "questions")
    return questions


def all_questions() -> Mapping[str, OwnQuestions]:
    """Return the questions of all registered systems that have some."""
    found = {system: questions_of(system) for system in SYSTEMS}
    return {system: questions for system, questions in found.items() if questions is not None}
