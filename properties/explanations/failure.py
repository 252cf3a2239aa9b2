"""A run and the step in which it breaks a rule. All evidence is collected from these two. Some
systems add explanations of their own."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ...model.observation import Step
from ...model.scenario import Scenario
from ...spec.catalogue import load
from ...spec.systems import part
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory
from ..rules.predicate import Broken

NUMBERS = re.compile(r"\d+")
# Words in the messages of rules about a request that should have had a turn.
WAITS = re.compile(
    r"\b(waits?|could run|gets (nothing|no)|not scheduled|left out|no turn|paused)\b"
)


class Projected(NamedTuple):
    """The projection made when a request asked to join the batch.

    Attributes:
        step: number of the step, from 0.
        newcomer: the request that asked to join.
        reaches: for each request, the largest tkv, in tokens, that it can still reach.
        largest: the largest batch x tkv that the check considered, in tokens.
        joined: whether the newcomer ran in this step. If it did not, the limit refused it.
    """

    step: int
    newcomer: str
    reaches: Mapping[str, int]
    largest: int
    joined: bool


def projections(scenario: Scenario, version: str, steps: Sequence[Step]) -> list[Projected]:
    """Return the projections of a run, in the order of the steps, or an empty list if they are
    unknown.

    `version` is the version that the target reports: a revision of the model, or a release.
    """
    own: Callable[[Scenario, str, Sequence[Step]], Iterable[Projected]] | None
    own = part(scenario.system, "projections")
    return [] if own is None else [*own(scenario, version, steps)]


def explain(rule: str, scenario: Scenario, step: int, version: str) -> list[str]:
    """Return sentences that explain how the rule came to be broken, or an empty list if the cause
    is unknown.

    `version` is the version that the target reports: a revision of the model, or a release.
    """
    explainer: Callable[[str, Scenario, int, str], list[str]] | None
    explainer = part(scenario.system, "explain")
    return [] if explainer is None else explainer(rule, scenario, step, version)


class Failure:
    """A run up to the step that breaks a rule.

    Attributes:
        history: the run after that step.
        steps: its decisions; `last` and `before` are the last two steps with all their fields.
        holders: for each block, the requests that have held it, each with a step. For a request
            that still holds the block, this is the step in which it took the block; for any other,
            the last step in which it held the block.
        first: the first broken rule; `message` and `numbers` cover all of them.
        ended_by_it: whether the last step breaks the rule. If it does not, the target raised an
            exception or hung.
        is_progress: whether the rule is about requests that wait too long.
    """

    def __init__(
        self,
        history: RunHistory[Any],
        version: str,
        steps: Sequence[Step],
        shown: tuple[Step | None, Step | None],
        holders: Mapping[int, Mapping[str, int]],
        scenario: Scenario,
        broken: Sequence[Broken],
    ) -> None:
        self.history, self.config = history, history.config
        self.version, self.steps, self.holders = version, steps, holders
        self.before, last = shown
        self.last = last or Step(kind="idle", scheduled={})
        self.scenario, self.first = scenario, broken[0]
        self.message = " ".join(failure.message for failure in broken)
        self.numbers = {int(number) for number in NUMBERS.findall(self.message)}
        self.ended_by_it = self.first.step < len(steps)
        rules = load(history.system, history.revision)
        self.is_progress = any(r.id == self.first.rule and r.kind == "progress" for r in rules)

    def holder(self, block: int, reader: str) -> tuple[str, int] | None:
        """Return the last request, other than `reader`, that held a block, and the step in which it
        held the block."""
        held = [holder for holder in self.holders.get(block, {}).items() if holder[0] != reader]
        return held[-1] if held else None

    @cached_property
    def projections(self) -> list[Projected]:
        return projections(self.scenario, self.version, self.steps)

    def facts(self) -> list[str]:
        """Return sentences of the system that accompany the picture of the cause."""
        own: Callable[[Failure], Iterable[str]] | None = part(self.history.system, "facts")
        return [] if own is None else [*own(self)]

    @property
    def waits(self) -> bool:
        """Return whether the message says that a request should have been scheduled."""
        return WAITS.search(self.first.message) is not None and not self.lost

    @cached_property
    def lost(self) -> list[str]:
        """Return the unfinished requests that the message names and that are in none of the
        target's queues."""
        last = self.last
        if not self.ended_by_it or "neither waiting" not in self.first.message:
            return []
        queued = {*(last.waiting or ()), *(last.running or ()), *(last.paused or ())}
        live = self.history.live
        return [name for name in live if name not in queued and self.names(name)]

    def concerns(self, name: str) -> bool:
        """Return whether the failure may be about this request: the message names it or, if the
        rule is about waiting too long, the request is unfinished."""
        return self.names(name) or (self.is_progress and name in self.history.live)

    def names(self, name: str) -> bool:
        return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", self.first.message) is not None


def left(account: RequestHistory) -> str:
    return f", and has left ({account.ended})" if account.ended else ""
