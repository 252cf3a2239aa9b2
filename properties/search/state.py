"""One search: its options, callbacks, coverage, and findings so far."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from ...model.faults import TargetFault
from ...model.scenario import Request, Scenario
from ...model.target import Target
from ...spec.catalogue import Rule
from ..history.features import features_of
from ..history.run_history import RunHistory
from ..rules.predicate import Broken

NO_END = 10**9  # a number of steps that no run reaches


class StopSearch(BaseException):
    """Ends a search at once. It is not derived from Exception, so that Hypothesis does not catch
    it."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search.

    Attributes:
        known: rules already found to be broken. A run ends as soon as it breaks one of them,
            because a rule that it breaks later may be broken as a consequence.
        config: the configuration to use, instead of those of the scale.
        fixed: configuration keys with a fixed value, which replaces the values of the scale.
        choices: for each key that the target declares, the values to choose from.
        avoid: kinds of configuration that the target is known to refuse, named as in the system's
            strategies.
        max_steps: the number of steps after which no new run begins.
        shrink_steps: the number of steps, counted from the first failure, after which no new run
            begins that only shrinks it.
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
    max_steps: int = NO_END
    shrink_steps: int = NO_END


def _all_are_new(broken: list[Broken], _: Scenario) -> list[Broken]:
    return broken


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a search.

    Attributes:
        new: called for each run. It returns a function that takes the rules that a step breaks, and
            keeps those not known to be broken. If none is left, the run continues.
        watch: called with the search before each run.
        ended: called with the scenario of each run, including refused requests.
    """

    new: Callable[[], Callable[[list[Broken], Scenario], list[Broken]]] = lambda: _all_are_new
    watch: Callable[["Search"], None] | None = None
    ended: Callable[[Scenario], None] | None = None


def features_of_requests(scenario: Scenario) -> dict[str, bool]:
    requests = scenario.requests
    shared = any(stream != request.id for request in requests for stream, _ in request.prompt)
    early = any(request.tokens_to_emit < request.max_tokens for request in requests)
    own = features_of(scenario.system).of_requests(scenario.config, requests)
    return {
        "abort": any(request.abort_at is not None for request in requests),
        "end before max_tokens": early,
        "shared prompt": shared and not any(request.encoder_inputs for request in requests),
        "priority": any(request.priority for request in requests),
        **own,
    }


def kept_going(scenario: Scenario, step: int) -> Scenario:
    """Return the scenario, changed so that a replay takes this step even if nothing is left to do
    by then. Unless something happens in this step or later, add a request that arrives in the next
    one."""
    times = [event.step for event in scenario.events]
    times += [
        at for request in scenario.requests for at in (request.arrival, request.abort_at or 0)
    ]
    if step <= max(times):
        return scenario
    later = Request(id="later", arrival=step + 1, prompt=(("later", 1),), max_tokens=1)
    return msgspec.structs.replace(scenario, requests=(*scenario.requests, later))


class Reach(msgspec.Struct, frozen=True):
    """The sizes and features of some runs. Requests that the target refused are not counted.

    Attributes:
        runs: the number of runs, without those that only shrink a finding.
        requests: the largest number of accepted requests in a run.
        prompt_tokens: the largest number of prompt tokens that one request computed or found in the
            cache.
        output_tokens: the largest number of tokens that one request generated.
        steps: the number of steps in the longest run.
        features: for each feature, the number of runs that had it; 0 if none did.
    """

    runs: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    features: dict[str, int] = {}

    def with_run(self, scenario: Scenario, history: RunHistory[Any]) -> "Reach":
        """Return the reach with one more run, whose accepted requests are in `scenario`."""
        accounts = history.requests.values()
        features = {
            **features_of_requests(scenario),
            "abort inside a step": any(request.abort_inside for request in scenario.requests),
            "bounded pool": scenario.config.get("num_blocks") is not None,
            **({"control event": True} if scenario.events else {}),
        }
        return self + Reach(
            1,
            len(accounts),
            max((min(each.prompt, each.max_computed) for each in accounts), default=0),
            max((each.emitted for each in accounts), default=0),
            history.step,
            {name: int(occurs) for name, occurs in features.items()},
        )

    def __add__(self, other: "Reach") -> "Reach":
        features = Counter(self.features)
        features.update(other.features)
        return Reach(
            self.runs + other.runs,
            max(self.requests, other.requests),
            max(self.prompt_tokens, other.prompt_tokens),
            max(self.output_tokens, other.output_tokens),
            max(self.steps, other.steps),
            dict(features),
        )


@dataclass
class Search:
    """One search for a counterexample, and its result so far.

    Attributes:
        runs, steps: the number of runs and steps, including shrinking.
        empty: the number of runs that Hypothesis counts although they ended before the target was
            started.
        exercised: for each rule, the number of steps in which its witness occurred.
        exercised_cleanly: rules whose witness occurred in a run that was not ended by a broken
            rule.
        runs_cut_short: for each rule, the number of runs that it ended.
        reach: the extent of the runs, without those that shrink.
        refused: the target's messages about configurations that it refused, with their counts.
        rejected: number of requests that the target refused.
        failure: the smallest scenario so far that broke a rule, and the rules that it broke.
        fault: the breach of the protocol that ended the search early.
        runs_to_failure, steps_to_failure, found_after, shrink_seconds: runs, steps and seconds
            until a rule was first broken, and seconds that Hypothesis spent on shrinking.
    """

    options: SearchOptions
    hooks: Hooks = field(default_factory=Hooks)
    runs: int = 0
    steps: int = 0
    empty: int = 0
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

        Raise StopSearch if no steps are left, or no runs or steps for shrinking.
        """
        if self.failure is None and self.exhausted:
            raise StopSearch
        if self.failure is not None:
            shrinking = self.steps - self.steps_to_failure
            if self.runs >= self.run_limit or shrinking >= self.options.shrink_steps:
                raise StopSearch
        self.runs += 1
        if self.hooks.watch is not None:
            self.hooks.watch(self)

    def break_off(self, fault: TargetFault) -> NoReturn:
        """End the search at once. A breach of the protocol is not shrunk, since every run would
        have to start a new process.

        Raise StopSearch always; `run_search` raises the fault.
        """
        self.fault = fault
        raise StopSearch

    def count(self, exercised: Counter[str], cut_by: str | None) -> None:
        """Add the rules that a run exercised. `cut_by` is the broken rule that ended the run."""
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
        """Return the step of the smallest failure so far. A run that continues beyond this step
        cannot yield a smaller failure."""
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
    """Return the size of a scenario, for comparison: the number of requests, then tokens and steps
    before arrivals."""
    tokens = sum(
        request.prompt_len + request.max_tokens + request.arrival for request in scenario.requests
    )
    return len(scenario.requests), tokens
