"""Compare a changed scheduler with its base by running the same scenarios on both.

If the base fails in the same way as the change, the failure is not blamed on the change: the run
and the search for that rule continue. The base fails in the same way if it breaks the same rule in
the same scenario, with the same requests, for the same reason, and no later than the change.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.scenario import Scenario
from ...properties.checking.difference import HANG, Difference
from ...properties.checking.differential_target import Coverage, DifferentialTarget
from ...properties.checking.failure_signature import shape
from ...properties.checking.replay import replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import COMPLETION, NEVER_CRASHES, NEVER_HANGS, PROGRESS
from ...properties.search.state import NO_END, size
from ...spec.catalogue import Rule
from ..targets.target_spec import TargetSpec

ENDS = (NEVER_CRASHES, NEVER_HANGS)
STANDSTILL = 1_000  # a run that makes no progress for this many steps is not continued


class BaseOptions(NamedTuple):
    """The target with which a change is compared.

    `terms` gives, for each of the two targets, the system and the revision with which it starts.
    After `stop_after` differences, the gate runs no further stage.
    """

    spec: TargetSpec
    terms: tuple[tuple[str, str], tuple[str, str]]
    stop_after: int = NO_END


class Noted(NamedTuple):
    """The smallest run that shows a behaviour, and the time in seconds after which the behaviour
    was first found."""

    scenario: Scenario
    engine: str
    scale: str
    difference: Difference | None = None
    found_after: float = 0.0


@dataclass
class Compared:
    """The results of running the change and its base side by side.

    Attributes:
        differences: the smallest run for each shape of difference; `seen` counts all runs that show
            it.
        repaired: for each rule, the smallest run in which the base breaks the rule and the change
            does not; `kept` counts such runs.
        shared: for each rule that both break in the same scenario, the number of such runs.
        intended: for each rule that the change breaks after breaking an excluded rule, the number
            of such runs.
    """

    differences: dict[str, Noted] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    repaired: dict[str, Noted] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    shared: Counter[str] = field(default_factory=Counter)
    intended: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, other: "Compared") -> None:
        for kind, noted in other.differences.items():
            keep_smaller(self.differences, kind, noted)
        for rule, noted in other.repaired.items():
            keep_smaller(self.repaired, rule, noted)
        self.seen.update(other.seen)
        self.shared.update(other.shared)
        self.intended.update(other.intended)
        self.kept.update(other.kept)
        self.coverage.add(other.coverage)


def keep_smaller(kept: dict[str, Noted], key: str, noted: Noted) -> None:
    before = kept.get(key)
    if before is None:
        kept[key] = noted
    elif size(noted.scenario) < size(before.scenario):
        kept[key] = noted._replace(found_after=before.found_after)


class Base:
    """Runs the base of a change alongside the change.

    Attributes:
        excluded: the rules that the change breaks on purpose. They are checked anyway, because a
            failure that follows an intended difference may be its consequence.
        began: the time at which the first run began, from `time.monotonic`.
    """

    def __init__(
        self, pair: DifferentialTarget, rules: Sequence[Rule], excluded: Sequence[Rule] = ()
    ) -> None:
        self.pair = pair
        self.excluded = excluded
        self.compared = Compared(coverage=pair.coverage)
        self._rules = rules
        choices = {rule.id for rule in rules if rule.kind in ("decision", "progress")}
        self._unseen = {*ENDS, *(rule.id for rule in rules if "blocks" in rule.needs)}
        self._choices = choices - PROGRESS  # no intended order lets a request wait forever
        # If the base decides differently, it may reach the same deadlock or crash in a later step.
        self._at_any_step = {*ENDS, *(rule.id for rule in rules if rule.kind == "progress")}
        self._run = 0
        self._broken: set[str] = set()  # rules that the change breaks in the current run, `_run`
        self._shared: dict[str, str] = {}  # failures that both targets have in `_run`, by rule
        # Excluded rules that are broken in `_run`, and rules that are broken after them.
        self._intended: set[str] = set()
        self._cut = False
        self._kinds: set[str] = set()  # kinds of the differences so far
        self._steps = 0  # steps that the base took alone; 0 if it could not continue
        self.began = time.monotonic()

    @property
    def hangs(self) -> bool:
        """Whether the change or the base hangs. In that case, every further run may take as long as
        the time limit."""
        return any(shape.startswith(HANG) for shape in self.compared.differences)

    def new(self, broken: list[Broken], scenario: Scenario) -> list[Broken]:
        """Return the failures in this scenario that the change has and the base does not."""
        if self._run != self.pair.runs:
            self._run, self._broken, self._shared, self._cut = self.pair.runs, set(), {}, False
            self._intended = set()
        broken = self._unintended(broken)
        self._broken |= {failure.rule for failure in broken}
        unknown = [failure for failure in broken if _signature(failure) not in self._shared]
        if not unknown or not self._rules:
            return []
        shared = unknown
        # As long as both targets decide alike, the base has the same failures and need not run
        # again. This does not hold for a crash, a hang or a rule about blocks: steps are compared
        # without their block numbers, so two steps that compare as equal may use different blocks.
        alike = self.pair.together and not self.pair.differences
        if not alike or any(failure.rule in self._unseen for failure in unknown):
            later = any(failure.rule in self._at_any_step for failure in unknown)
            to_the_end = any(failure.rule == COMPLETION for failure in unknown)
            last_step = None if later else unknown[0].step
            failures = self.failures_of_base(scenario, last_step, to_the_end)
            if alike and self._steps:  # else both are in the same step
                self.pair.rejoin(self._steps)
            shared = [failure for failure in unknown if self._explained(failure, failures)]
        new = [failure for failure in unknown if failure not in shared]
        self.compared.shared.update({failure.rule for failure in shared} - {*self._shared.values()})
        self._shared |= {_signature(failure): failure.rule for failure in shared}
        self._cut |= bool(new)
        return new

    def _unintended(self, broken: list[Broken]) -> list[Broken]:
        """Return the failures that an intended difference cannot explain.

        An intended difference explains the wrong decisions and the waits that follow in the same
        run. It never explains a broken bound, a crash or a wrong token.
        """
        excluded = {rule.id for rule in self.excluded}
        if not self._intended and not any(failure.rule in excluded for failure in broken):
            return broken
        explained = {failure.rule for failure in broken} & (self._choices | excluded)
        self.compared.intended.update(explained - excluded - self._intended)
        self._intended |= explained
        return [failure for failure in broken if failure.rule not in explained]

    def _explained(self, failure: Broken, of_base: Sequence[Broken]) -> bool:
        meant = _signature(failure)
        return any(
            _signature(same) == meant
            and (same.step <= failure.step or same.rule in self._at_any_step)
            for same in of_base
        )

    def has(self, failure: Broken, scenario: Scenario) -> bool:
        """Return whether the base fails in the same way when it runs the scenario to its end.

        A search stops at the first failure of the change. The base may reach the same failure in a
        later step.
        """
        explained = self._explained(failure, self.failures_of_base(scenario))
        self.compared.shared[failure.rule] += explained
        return explained

    def failures_of_base(
        self, scenario: Scenario, last_step: int | None = None, to_the_end: bool = False
    ) -> list[Broken]:
        """Run a scenario on the base alone, and return its failures in order.

        If the base makes no progress, the run is stopped early or, with `to_the_end`, only at the
        bound of completion (ALL-R06).
        """
        self.pair.part()
        self._steps = 0
        failures: list[Broken] = []
        left = STANDSTILL

        def collect(broken: list[Broken], _: Scenario) -> list[Broken]:
            nonlocal left
            failures.extend(broken)
            left -= any(failure.rule in PROGRESS for failure in broken)
            late = any(failure.rule == COMPLETION for failure in broken)
            ends = late if to_the_end else not left
            return broken if ends else []

        try:
            base = self.pair.sides[1].target
            outcome = replay(base, scenario, self._rules, None, last_step, collect)
        except (ConfigRefused, InputError):
            return []
        self._steps = 0 if outcome.cut_short else outcome.steps
        return failures

    def broken_by_base(self, scenario: Scenario) -> dict[str, Broken]:
        """Run a scenario to its end on the base alone, and return the first failure of each
        rule."""
        return {failure.rule: failure for failure in reversed(self.failures_of_base(scenario))}

    def has_with_fewer(self, failure: Broken, scenario: Scenario) -> bool:
        """Return whether the base fails in the same way in a small scenario once some request is
        removed. If so, the change decides differently before the failure, but does not cause it."""
        meant = _signature(failure, scenario.request_ids)
        for left_out in scenario.requests:
            rest = [request for request in scenario.requests if request != left_out]
            names = [request.id for request in rest]
            failures = (
                self.failures_of_base(replace(scenario, requests=tuple(rest))) if rest else []
            )
            if any(_signature(failure, names) == meant for failure in failures):
                self.compared.shared[failure.rule] += 1
                return True
        return False

    def only_base_breaks(self, rule: str, scenario: Scenario) -> bool:
        try:
            change = replay(self.pair.sides[0].target, scenario, self._rules)
        except (ConfigRefused, InputError):
            return False
        return rule in self.broken_by_base(scenario) and not change.broken

    def record_run(
        self, scenario: Scenario, engine: str, scale: str, judge: bool = True
    ) -> list[Noted]:
        """Record how the change and its base differ in the run that has just finished, and return
        the first difference of each kind. With `judge`, also record the rules that only the base
        breaks."""
        compared, first = self.compared, []
        for difference in self.pair.differences:
            compared.seen[difference.shape] += 1
            after = time.monotonic() - self.began
            noted = Noted(scenario, engine, scale, difference, after)
            first += [noted] * (difference.kind not in self._kinds)
            self._kinds.add(difference.kind)
            keep_smaller(compared.differences, difference.shape, noted)
        if not (judge and self._rules and self.pair.differences):
            return first
        same_run = self._run == self.pair.runs
        if same_run and self._cut:
            return first
        broken = self._broken if same_run else set()
        for rule in self.broken_by_base(scenario).keys() - broken:
            compared.kept[rule] += 1
            keep_smaller(compared.repaired, rule, Noted(scenario, engine, scale))
        return first


def _signature(failure: Broken, requests: Sequence[str] = ()) -> str:
    """Return the failure's rule and its message without numbers and without the names of
    `requests`. Leave out the place where an exception was raised, because a change may move code.
    """
    return shape(failure._replace(place=""), requests)
