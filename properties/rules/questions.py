"""Choose the rules to evaluate at each step: those whose results may have changed since the
previous step."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from ...model.observation import Step
from ..history.run_history import RunHistory
from .predicate import FIRST, PHASES, Predicate

# the fields that determine which requests prefill or decode in a step
MEMBERS = ("scheduled", PHASES)
NOTHING, MOVED = frozenset[str](), frozenset({PHASES})
Check = tuple[str, Callable[..., str | None], Callable[..., bool]]


class Choice(NamedTuple):
    """The checks to evaluate at a step, their rules, and the other rules that apply to the step."""

    asked: list[Check]
    rules: frozenset[str]
    unasked: frozenset[str]


class Choices:
    """Chooses among a set of checks. Each choice is made once, and shared by all runs with these
    checks.

    Attributes:
        names: the fields of a step that decide which checks are evaluated.
        values: a function that returns these fields, in this order.
    """

    def __init__(self, checks: Sequence[tuple[str, Predicate]]) -> None:
        self._checks = checks
        read = {name for _, check in checks for name in _reads(check) or ()}
        self.names = ("kind", "scheduled", *sorted(read - {"kind", "scheduled", PHASES, FIRST}))
        self.values = attrgetter(*self.names)
        self._made: dict[Any, Choice] = {}

    def of(self, absent: tuple[str, ...], changed: frozenset[str] | None) -> Choice:
        """Return the choice for a step.

        `absent` names the kinds of members that the step does not have, and `changed` what has
        changed since the previous step; None means that anything may have changed.
        """
        choice = self._made.get((absent, changed))
        if choice is None:
            choice = self._made[absent, changed] = self._chosen(absent, changed)
        return choice

    def _chosen(self, absent: tuple[str, ...], changed: frozenset[str] | None) -> Choice:
        applies = [(rule, check) for rule, check in self._checks if check.members not in absent]
        asked = [
            (rule, check.broken, check.exercised)
            for rule, check in applies
            if changed is None or (reads := _reads(check)) is None or not changed.isdisjoint(reads)
        ]
        rules = frozenset(rule for rule, *_ in asked)
        return Choice(asked, rules, frozenset(rule for rule, _ in applies) - rules)


choices_of = lru_cache(maxsize=32)(Choices)


class Questions:
    """Chooses the checks to evaluate at each step of a run, and keeps the previous results of all
    other checks.

    A rule is not evaluated if neither this step nor the previous one changed anything that the rule
    reads. The previous result then still applies: the rule is not broken, and its witness occurs if
    it occurred in the previous step.
    """

    def __init__(self, checks: Sequence[tuple[str, Predicate]]) -> None:
        self._choices = choices_of(tuple(checks))
        self._names, self._values = self._choices.names, self._choices.values
        self._seen: tuple[Any, ...] | None = None
        self._moves = self._client_changes = -1
        self._absent: tuple[str, ...] = ()
        self._changed: frozenset[str] = frozenset()
        self._occurring: set[str] = set()
        self._choice: Choice
        self._all = True

    def of(self, history: RunHistory[Any], step: Step) -> list[Check]:
        """Return the checks to evaluate, each as rule id, `broken` and `exercised`."""
        values = self._values(step)
        moved = history.moves != self._moves
        if self._seen is None:
            changed = frozenset((*self._names, PHASES, FIRST))
        elif values == self._seen:
            changed = MOVED if moved else NOTHING
        else:
            pairs = zip(self._names, values, self._seen, strict=True)
            changed = frozenset(name for name, value, before in pairs if value != before)
            changed |= MOVED if moved else NOTHING
        everything = self._all or history.client_changes != self._client_changes
        if everything or not changed.isdisjoint(MEMBERS):
            absent = () if history.prefill_members(step) else ("prefill",)
            self._absent = absent if history.decode_members(step) else (*absent, "decode")
        since = None if everything else changed | self._changed
        self._seen, self._changed = values, changed
        self._moves, self._client_changes = history.moves, history.client_changes
        self._choice = self._choices.of(self._absent, since)
        return self._choice.asked

    def answered(self, occurred: Iterable[str], broken: bool) -> Iterable[str]:
        """Return the rules whose witness occurs in the step, including those that were not
        evaluated.

        After a broken rule, all rules are evaluated at the next step.
        """
        self._all = broken
        self._occurring -= self._choice.rules
        occurring = self._occurring & self._choice.unasked
        self._occurring.update(occurred)
        return occurring.union(occurred)


def _reads(check: Predicate) -> tuple[str, ...] | None:
    """Return everything that the results of a check depend on: what the check reads, and what
    determines which requests it is about."""
    if check.reads is None or check.members == "any":
        return check.reads
    return (*check.reads, *MEMBERS)
