"""One search: its options, callbacks, coverage, and findings so far."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...model.faults import TargetFault
from ...model.scenario import Scenario
from ...model.target import Target
from ...spec.catalogue import Rule
from ..rules.predicate import Broken, Predicate
from .reach import Reach

NO_END = 10**9  # a number of steps that no run reaches


class StopSearch(BaseException):
    """Ends a search at once; not an Exception, so that Hypothesis does not catch it."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search.

    Attributes:
        known: rules already found broken. A run ends when it breaks one of these first, since what
            breaks later may be a consequence.
        config: the configuration to use, instead of those of the scale.
        fixed: configuration keys with a fixed value, which replaces the values of the scale.
        choices: for each key that the target declares, the values to choose from.
        avoid: kinds of configuration that the target is known to refuse, by the names in the
            system's strategies.
        predicates: predicates that replace those of the system.
        max_steps: the number of steps after which no new run begins.
    """

    target: Target
    system: str
    revision: str
    rules: Sequence[Rule]
    scale: Any
    known: frozenset[str] = frozenset()
    config: dict[str, Any] | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    avoid: frozenset[str] = frozenset()
    predicates: Mapping[str, Predicate] | None = None
    max_steps: int = NO_END


def _all_are_new(broken: list[Broken], _: Scenario) -> list[Broken]:
    return broken


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a search.

    Attributes:
        new: called for each run; returns a function that selects, among the rules that a step
            breaks, those not known to break. If only known ones break, the run continues.
        watch: called with the search before each run.
        ended: called with the scenario of each run, including refused requests.
    """

    new: Callable[[], Callable[[list[Broken], Scenario], list[Broken]]] = lambda: _all_are_new
    watch: Callable[["Search"], None] | None = None
    ended: Callable[[Scenario], None] | None = None


@dataclass
class Search:
    """One search for a counterexample, and its result so far.

    Attributes:
        runs, steps: the number of runs and steps, including shrinking.
        exercised: for each rule, the number of steps in which its witness occurred.
        exercised_cleanly: rules whose witness occurred in a run that no broken rule ended.
        runs_cut_short: for each rule, the number of runs that it ended.
        reach: the extent of the runs, without those that shrink.
        refused: the target's messages about configurations that it refused, with their counts.
        rejected: number of requests that the target refused.
        failure: the smallest scenario so far that broke a rule, and the rules that it broke.
        fault: the breach of the protocol that ended the search early.
        runs_to_failure, steps_to_failure, found_after, shrink_seconds: runs, steps and seconds
            until a rule first broke, and seconds that Hypothesis spent on shrinking it.
    """

    options: SearchOptions
    hooks: Hooks = field(default_factory=Hooks)
    runs: int = 0
    steps: int = 0
    exercised: Counter[str] = field(default_factory=Counter)
    exercised_cleanly: set[str] = field(default_factory=set)
    runs_cut_short: Counter[str] = field(default_factory=Counter)
    reach: Reach = field(default_factory=Reach)
    refused: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    failure: tuple[Scenario, list[Broken]] | None = None
    fault: TargetFault | None = None
    runs_to_failure: int = 0
    steps_to_failure: int = 0
    found_after: float = 0.0
    shrink_seconds: float = 0.0
    run_limit: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def counts(self) -> Counter[str]:
        """Return counts of runs, steps, refused configurations and rejected requests, by name."""
        refused = self.refused.total()
        return Counter(runs=self.runs, steps=self.steps, refused=refused, rejected=self.rejected)

    def begin_run(self) -> None:
        """Count a run.

        Raises:
            StopSearch: no steps, or no runs for shrinking, are left.
        """
        if self.failure is None and self.exhausted:
            raise StopSearch
        if self.failure is not None and self.runs >= self.run_limit:
            raise StopSearch
        self.runs += 1
        if self.hooks.watch is not None:
            self.hooks.watch(self)

    def break_off(self, fault: TargetFault) -> NoReturn:
        """End the search at once. A breach of the protocol is not shrunk, since every run would
        have to start a new process.

        Raises:
            StopSearch: always; `run_search` raises the fault.
        """
        self.fault = fault
        raise StopSearch

    def count(self, exercised: Counter[str], cut_by: str | None) -> None:
        """Add the rules that a run exercised; `cut_by` is the broken rule that ended the run, or
        None."""
        self.exercised.update(exercised)
        if cut_by is None:
            self.exercised_cleanly |= (+exercised).keys()
        else:
            self.runs_cut_short[cut_by] += 1

    @property
    def exhausted(self) -> bool:
        return self.steps >= self.options.max_steps

    @property
    def last_step(self) -> int:
        """Return the step in which the smallest failure so far breaks its rule; a longer run cannot
        be smaller."""
        return NO_END if self.failure is None else self.failure[1][0].step

    def fail(self, scenario: Scenario, broken: list[Broken], shrink_runs: int) -> None:
        """Keep the smallest scenario that breaks a rule."""
        if self.failure is None:
            self.runs_to_failure = self.runs
            self.steps_to_failure = self.steps
            self.run_limit = self.runs + shrink_runs
            self.found_after = time.monotonic() - self.began
        elif broken[0].rule != self.failure[1][0].rule:
            return
        if self.failure is None or size(scenario) <= size(self.failure[0]):
            self.failure = (scenario, broken)


def size(scenario: Scenario) -> tuple[int, int]:
    """Return the size of a scenario, for comparison: requests, then tokens and steps before
    arrivals."""
    tokens = sum(
        request.prompt_len + request.max_tokens + request.arrival for request in scenario.requests
    )
    return len(scenario.requests), tokens
