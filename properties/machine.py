"""The Hypothesis state machine that drives any target: arrive, step, abort, drain."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ..model.faults import ConfigRefused
from ..model.scenario import Request, Scenario, Segment
from ..model.systems import full_config
from ..model.target import Target
from ..spec.catalogue import Rule
from .constants import without_local_constants
from .predicate import Broken
from .rules import ends_run
from .session import Session
from .systems import GENERATORS

MAX_REQUESTS = 8
MAX_ABORTS = 2
PATIENCE = 100  # steps
NO_END = 10**9  # steps, more than any run has


class RuleBroken(Exception):  # noqa: N818 (a finding, not an error)
    """Raised in the machine when a rule breaks: what Hypothesis shrinks."""


class Enough(BaseException):
    """Ends a search at once; not an Exception, so that Hypothesis lets it pass."""


class EndsTooSoon(KeyboardInterrupt):
    """Everything has ended while steps were foreseen. What Hypothesis is shown must not depend on
    that, so that it has to begin anew; of an interrupt it keeps nothing in its database."""


@dataclass
class Search:
    """One search for a counterexample, and what it has covered so far.

    Attributes:
        known: rules already found broken: a run that breaks one of them first is not followed
            further, since what comes after may be its consequence.
        new: of the rules that a step breaks those that are not known to; with the others the run
            goes on.
        runs, steps: how much ran, shrinking included.
        refused: configurations that the target refused, by its words.
        rejected: requests refused at the door.
        failure: the smallest scenario so far that broke a rule, and what it broke.
        runs_to_failure, found_after, shrink_seconds: runs and seconds until a rule first broke,
            and seconds that Hypothesis shrank it.
        watch: called after each run.
        config: the only configuration, instead of those of the scale.
        fixed: keys of the configuration that have one value only, those of the scale or not.
        ended: called with the scenario of each run, those included that were refused at the door.
        foresees: steps are foreseen, as long as everybody stays until the end that is known.
    """

    target: Target
    system: str
    revision: str
    rules: Sequence[Rule]
    scale: Any
    known: frozenset[str] = frozenset()
    new: Callable[[list[Broken], Scenario], list[Broken]] = lambda broken, _: broken
    runs: int = 0
    steps: int = 0
    at_stake: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    failure: tuple[Scenario, list[Broken]] | None = None
    runs_to_failure: int = 0
    found_after: float = 0.0
    shrink_seconds: float = 0.0
    watch: Callable[[], None] | None = None
    config: dict[str, Any] | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    ended: Callable[[Scenario], None] | None = None
    foresees: bool = True
    run_limit: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def counts(self) -> Counter[str]:
        """How much ran, and was refused or rejected, by these words."""
        refused = self.refused.total()
        return Counter(runs=self.runs, steps=self.steps, refused=refused, rejected=self.rejected)

    def begin_run(self) -> None:
        """Count a run; the shrinking budget ends the search."""
        if self.failure is not None and self.runs >= self.run_limit:
            raise Enough
        self.runs += 1
        if self.watch is not None:
            self.watch()

    def begin_again(self) -> None:
        """Forget what was counted: all of it is done once more, step by step."""
        self.foresees = False
        self.runs = self.steps = self.rejected = 0
        self.at_stake.clear()
        self.refused.clear()

    @property
    def last_step(self) -> int:
        """A run that gets past the step that broke before does not shrink it."""
        return NO_END if self.failure is None else self.failure[1][0].step

    def fail(self, scenario: Scenario, broken: list[Broken], shrink_runs: int) -> None:
        """Keep the smallest scenario that breaks a rule."""
        if self.failure is None:
            self.runs_to_failure = self.runs
            self.run_limit = self.runs + shrink_runs
            self.found_after = time.monotonic() - self.began
        elif broken[0].rule != self.failure[1][0].rule:
            return
        if self.failure is None or size(scenario) <= size(self.failure[0]):
            self.failure = (scenario, broken)


def search(
    hunt: Search,
    examples: int,
    seed_value: int,
    shrink_runs: int,
    database: ExampleDatabase | None = None,
    reuse: bool = False,
) -> bool:
    """Run up to `examples` runs; True when a rule broke, with `hunt.failure` set.

    What broke is saved in the `database`; with `reuse` the runs that it has are tried first.

    Raises:
        TargetFault: the target is no target.
    """
    phases = [Phase.generate, *([Phase.shrink] if shrink_runs else [])]
    phases += [Phase.reuse] if reuse else []
    budget = settings(
        max_examples=examples,
        stateful_step_count=24,
        phases=phases,
        database=database,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with without_local_constants():
        try:
            _run(hunt, seed_value, shrink_runs, budget)
        except EndsTooSoon:
            hunt.begin_again()
            _run(hunt, seed_value, shrink_runs, budget)
    if hunt.failure is not None:
        hunt.shrink_seconds = time.monotonic() - hunt.began - hunt.found_after
    return hunt.failure is not None


def _run(hunt: Search, seed_value: int, shrink_runs: int, budget: settings) -> None:
    machine = seed(seed_value)(make_machine(hunt, shrink_runs))
    with contextlib.suppress(RuleBroken, Enough, Flaky, Unsatisfiable):
        run_state_machine_as_test(machine, settings=budget)


def size(scenario: Scenario) -> tuple[int, int]:
    """How much there is of a scenario: requests, then tokens and steps to wait."""
    tokens = sum(one.prompt_len + one.max_tokens + one.arrival for one in scenario.requests)
    return len(scenario.requests), tokens


def make_machine(hunt: Search, shrink_runs: int = 0) -> type[RuleBasedStateMachine]:
    """The machine class bound to one search."""
    generators = GENERATORS[hunt.system]
    configs = generators.configs(hunt.scale, hunt.revision).map(
        lambda drawn: {**drawn, **hunt.fixed}
    )
    if hunt.config is not None:
        configs = st.just(full_config(hunt.system, hunt.revision, hunt.config))

    class SchedulerMachine(RuleBasedStateMachine):
        """One run: requests arrive, steps pass, clients give up, the queue drains."""

        session: Session
        config: dict[str, Any]

        def __init__(self) -> None:
            super().__init__()
            self.requests: list[Request] = []
            self.over = True
            self.in_vain = False

        @initialize(config=configs)
        def start(self, config: dict[str, Any]) -> None:
            hunt.begin_run()
            try:
                self.session = Session(
                    hunt.target, hunt.system, hunt.revision, config, hunt.rules, hunt.at_stake
                )
            except ConfigRefused as refusal:
                hunt.refused[str(refusal)] += 1
                assume(False)
            self.config = config
            self.over = False

        @precondition(lambda self: not self.over and len(self.requests) < MAX_REQUESTS)
        @rule(data=st.data(), count=st.integers(1, 3))
        def arrive(self, data: st.DataObject, count: int) -> None:
            for _ in range(min(count, MAX_REQUESTS - len(self.requests))):
                self.one_arrival(data, data.draw(generators.shapes(self.config)))

        @precondition(lambda self: not self.over and self.may_join_late())
        @rule(
            data=st.data(),
            steps=st.integers(0, generators.LATE_STEPS),
            to_border=st.booleans(),
        )
        def arrive_late(self, data: st.DataObject, steps: int, to_border: bool) -> None:
            """Somebody joins a batch that has decoded for a while; a few come too late for it."""
            self.until_nobody_waits()
            ledger = self.session.monitor.ledger
            left = max((one.max_tokens - one.emitted for one in ledger.decoding()), default=0)
            self.some_steps(steps % (left + 4), to_border)
            if not self.over and ledger.decoding():
                strategy = generators.beside_the_batch(self.config, ledger)
                shape = data.draw(strategy)
                # What others said has its own length, which would miss the aim.
                own = ((f"r{len(self.requests)}", shape.prompt),)
                self.one_arrival(data, shape, own if data.draw(st.booleans()) else ())

        @precondition(lambda self: not self.over and len(self.requests) < MAX_REQUESTS - 1)
        @rule(data=st.data(), chunks=st.integers(0, 2))
        def arrive_during_prefill(self, data: st.DataObject, chunks: int) -> None:
            """Somebody arrives while a long prompt is computed."""
            self.one_arrival(data, data.draw(generators.long_prompts(self.config)))
            self.some_chunks(self.requests[-1].id, chunks)
            ledger = self.session.monitor.ledger
            if not self.over and ledger.ongoing():
                shape = data.draw(generators.beside_a_prefill(self.config, ledger))
                self.one_arrival(data, shape, ((f"r{len(self.requests)}", shape.prompt),))

        @precondition(lambda self: not self.over and self.may_repeat())
        @rule(data=st.data(), chunks=st.integers(0, 2), inside=st.booleans())
        def give_up_and_come_again(self, data: st.DataObject, chunks: int, inside: bool) -> None:
            """A client gives up while its prompt is computed, and then says the same again."""
            self.one_arrival(data, data.draw(generators.shapes(self.config)))
            given_up = self.requests[-1]
            self.some_chunks(given_up.id, chunks)
            if not self.over and given_up.id in self.session.monitor.ledger.live:
                self.give_up(given_up.id, inside)
                self.some_steps(1, False)
                shape = generators.fitted(self.config, given_up.prompt, None)
                self.one_arrival(data, shape, given_up.prompt)

        @rule(steps=st.integers(1, 12), to_border=st.booleans())
        def step(self, steps: int, to_border: bool) -> None:
            self.some_steps(steps, to_border)

        @precondition(lambda self: not self.over and self.may_abort())
        @rule(which=st.integers(0, MAX_REQUESTS - 1), inside=st.booleans())
        def abort(self, which: int, inside: bool) -> None:
            """Anyone may give up; every other time it is who prefills, if someone does."""
            ledger = self.session.monitor.ledger
            live = [one.id for one in ledger.ongoing() if which % 2] or list(ledger.live)
            self.give_up(live[which % len(live)], inside)

        @precondition(lambda self: not self.over and len(self.requests) >= MAX_REQUESTS // 2)
        @rule()
        def drain(self) -> None:
            ledger = self.session.monitor.ledger
            bound = ledger.most_steps
            while not self.over and not self.nothing_left() and ledger.busy_steps <= bound:
                self.foresee(bound + 1 - ledger.busy_steps)
                self.one_step()

        def give_up(self, name: str, inside: bool) -> None:
            index = next(i for i, one in enumerate(self.requests) if one.id == name)
            if self.requests[index].abort_at is None:
                patient = self.requests[index]
                now = self.session.monitor.ledger.step
                self.requests[index] = _aborted(patient, now, inside)
                self.judged(self.session.abort, name, inside)
                if self.session.cannot_abort:
                    self.requests[index] = patient

        def one_arrival(
            self, data: st.DataObject, shape: Any, content: tuple[Segment, ...] = ()
        ) -> None:
            """A request arrives that says `content`, or something that suits the run."""
            if self.over:
                return
            name = f"r{len(self.requests)}"
            content = content or data.draw(
                generators.contents(self.config, self.requests, name, shape.prompt)
            )
            shape = generators.fitted(self.config, content, shape)
            request = Request(
                id=name,
                arrival=self.session.monitor.ledger.step,
                prompt=content,
                max_tokens=shape.max_tokens,
                output_len=shape.output_len,
                priority=getattr(shape, "priority", 0),  # of systems whose scheduler reads it
            )
            self.requests.append(request)
            self.judged(self.session.add, request)
            hunt.rejected += name in self.session.rejected

        def some_steps(self, steps: int, to_border: bool) -> None:
            """So many steps, or so many past the next block border; one if nothing is left.

            Before the first request nothing can go wrong that a scenario could show.
            """
            if not self.requests:
                return
            if to_border and not self.over:
                steps += generators.steps_to_border(self.config, self.session.monitor.ledger)
            for number in range(steps):
                if self.over or (number > 0 and self.nothing_left()):
                    return
                self.foresee(steps - number)
                self.one_step()

        def some_chunks(self, name: str, chunks: int) -> None:
            """Until a request has started, and so many of its further chunks."""
            ledger = self.session.monitor.ledger
            for _ in range(PATIENCE):
                if self.over or name not in [one.id for one in ledger.unstarted()]:
                    break
                self.one_step()
            for _ in range(chunks):
                if not self.over and name in [one.id for one in ledger.ongoing()]:
                    self.one_step()

        def until_nobody_waits(self) -> None:
            """Let everything that has arrived join the batch, if it ever does."""
            ledger = self.session.monitor.ledger
            for _ in range(PATIENCE):
                if self.over or not (ledger.unstarted() or ledger.ongoing()):
                    return
                self.one_step()

        def may_join_late(self) -> bool:
            """There is somebody to join, and room in the run for one more."""
            return len(self.requests) < MAX_REQUESTS and self.session.unfinished

        def may_abort(self) -> bool:
            """Few clients give up."""
            return self.aborts() < MAX_ABORTS and bool(self.session.monitor.ledger.live)

        def may_repeat(self) -> bool:
            """There is a cache that a prompt can come back to, and room for both."""
            room = len(self.requests) < MAX_REQUESTS - 1 and self.aborts() < MAX_ABORTS
            return room and generators.caches(self.config)

        def aborts(self) -> int:
            return sum(request.abort_at is not None for request in self.requests)

        def foresee(self, steps: int) -> None:
            """Nothing but so many steps follows, if there is anything left so long."""
            if hunt.foresees:
                now = self.session.monitor.ledger.step
                self.session.foresee(min(steps, hunt.last_step - now + 1))

        def nothing_left(self) -> bool:
            """Everything has ended. Where that was too soon for the steps that were foreseen the
            run is over, and the search begins anew, step by step; if it shrinks, it goes on."""
            if not self.session.unfinished and self.session.asked:
                self.over = True
                if hunt.failure is None:
                    self.in_vain = True
                    raise EndsTooSoon
            return not self.session.unfinished

        def one_step(self) -> None:
            if self.session.monitor.ledger.step > hunt.last_step:
                self.over = True
                return
            hunt.steps += 1
            self.judged(self.session.step)

        def judged(self, operation: Callable[..., list[Broken]], *args: Any) -> None:
            """Ask the target. A run that is left half-way (Ctrl-C) has nothing to drain."""
            try:
                broken = operation(*args)
            except BaseException:
                self.over = True
                raise
            self.judge(broken)

        def judge(self, broken: list[Broken]) -> None:
            if not broken:
                return
            new = hunt.new(broken, self.scenario())
            self.over = bool(new) or ends_run(broken)
            if not new or new[0].rule in hunt.known:
                return
            hunt.fail(self.scenario(), new, shrink_runs)
            raise RuleBroken(new[0].rule)

        def scenario(self) -> Scenario:
            return Scenario(
                system=hunt.system,
                revision=hunt.revision,
                config=self.config,
                # What was refused at the door is no part of the run, unless nothing else came.
                requests=tuple(r for r in self.requests if r.id not in self.session.rejected)
                or tuple(self.requests),
            )

        def teardown(self) -> None:
            if not self.over:
                self.drain()
            if hunt.ended is not None and self.requests and not self.in_vain:
                hunt.ended(msgspec.structs.replace(self.scenario(), requests=tuple(self.requests)))

    return SchedulerMachine


def _aborted(request: Request, step: int, inside: bool) -> Request:
    return msgspec.structs.replace(request, abort_at=step, abort_inside=inside)
