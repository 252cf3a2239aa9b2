"""The Hypothesis state machine that drives any target: arrivals, steps, aborts, drain."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from hypothesis import assume, reject
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault
from ...model.scenario import Event, Request, Scenario, Segment
from ...model.systems import full_config, make_model
from ..checking.session import Session
from ..checking.translation import optional_in_effect, with_fixed
from ..history.bounds import bounds_of
from ..history.run_history import RunHistory
from ..rules.predicate import Broken
from ..rules.registry import AT_THE_DOOR, ends_run
from .generators import (
    Generators,
    Shape,
    generators_of,
    has_priorities,
    orders_by_priority,
    request_features_of,
)
from .state import Search, SearchOptions, kept_going


def configs(search: Search) -> st.SearchStrategy[dict[str, Any]]:
    options = search.options
    if options.config is not None:
        return st.just(full_config(options.system, options.revision, options.config))
    meant = optional_in_effect(options.system, options.revision, options.fixed)
    chosen = {key: st.sampled_from(values) for key, values in options.choices.items()}

    def configured(drawn: dict[str, Any]) -> dict[str, Any]:
        values = with_fixed(options.system, options.revision, drawn, options.fixed)
        try:
            config = full_config(options.system, options.revision, values)
            if meant:
                _check_smallest(options, config)
        except InputError as error:  # the drawn values do not fit the fixed ones
            search.refused[str(error)] += 1
            reject()
        return config

    avoid = (options.avoid,) if options.avoid else ()  # a system without kinds has no such argument
    drawn = generators_of(options.system).configs(options.scale, options.revision, *avoid)
    if chosen and "own" not in options.fixed:
        return st.builds(_with_own, drawn, st.fixed_dictionaries(chosen)).map(configured)
    return drawn.map(configured)


def _check_smallest(options: SearchOptions, config: dict[str, Any]) -> None:
    """Raise InputError if the model refuses even the smallest request.

    For example, a drawn pool may be too small for a fixed number of drafts, and a target need not
    refuse such a configuration.
    """
    smallest = Request(id="r", arrival=0, prompt=(("r", 1),), max_tokens=1)
    why = make_model(options.system, options.revision, config).refusal(smallest)
    if why is not None:
        raise InputError("$.config", why)


def _with_own(drawn: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return {**drawn, "own": own}


NAME = "large"


@st.composite
def too_large(draw: st.DrawFn, system: str, config: Mapping[str, Any]) -> Request | None:
    """Draw a request that exceeds a limit on its own, by its prompt, its output, or both together.
    Return None if there are no limits."""
    limits = bounds_of(system).limits(config)
    if not limits:
        return None
    features = request_features_of(system)
    if features is not None and (request := draw(features.too_large(config, NAME))) is not None:
        return request
    limit = draw(st.sampled_from(limits))
    longest = limit + draw(st.sampled_from((1, limit)))  # prompt + max_tokens - 1
    prompt = draw(st.sampled_from((1, longest // 2, longest)))
    prompt = max(prompt, 1)
    return Request(id=NAME, arrival=0, prompt=((NAME, prompt),), max_tokens=longest - prompt + 1)


MAX_REQUESTS = 8
MAX_ABORTS = 2
PATIENCE = 100  # steps
CONFIGS = st.runner().flatmap(lambda machine: configs(machine.search))
KNOCKS = st.sampled_from((False,) * 7 + (True,))
IMPATIENT = st.sampled_from((False, False, False, True))
OPERATED = st.sampled_from((False,) * 3 + (True,))
EVENTS = st.runner().flatmap(lambda machine: st.sampled_from(machine.generators.CONTROLS))
MAX_EVENTS = 6


class RuleBroken(Exception):  # noqa: N818 (a finding, not an error)
    """Raised when a rule is broken, so that Hypothesis shrinks the run."""


class SchedulerMachine(RuleBasedStateMachine):
    """One run: requests arrive, steps pass, clients abort, the queue is drained.

    `machine_of` binds the class to one search. Hypothesis can apply a rule of the machine only
    while the run continues.
    """

    search: ClassVar[Search]
    shrink_runs: ClassVar[int]
    session: Session
    config: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.knocked: list[Request] = []
        self.events: list[Event] = []
        self.begun = self.operated = self.impatient = False
        self.exercised = Counter[str]()
        self.cut_by: str | None = None
        self.over = True
        self.past_end = -1  # the last step that began when nothing was left to do
        self.new = self.search.hooks.new()

    @property
    def generators(self) -> Generators:
        return generators_of(self.search.options.system)

    @property
    def history(self) -> RunHistory:
        return self.session.monitor.history

    @initialize(
        config=st.runner().flatmap(lambda machine: configs(machine.search)),
        data=st.data(),
        knocks=KNOCKS,
        impatient=IMPATIENT,
    )
    def start(
        self, config: dict[str, Any], data: st.DataObject, knocks: bool, impatient: bool
    ) -> None:
        """Start the target. If it refuses the configuration, the run ends.

        Sometimes, a request that can never run arrives first. Sometimes, clients abort their
        requests when these are preempted.
        """
        self.impatient = impatient
        self.search.begin_run()
        self.begun = True
        options = self.search.options
        try:
            self.session = Session(
                options.target,
                options.system,
                options.revision,
                config,
                options.rules,
                self.exercised,
            )
        except ConfigRefused as refusal:
            self.search.refused[str(refusal)] += 1
            assume(False)
        except TargetFault as fault:
            self.search.break_off(fault)
        self.config = config
        self.over = False
        if self.session.broken_at_start:  # a scenario needs a request
            self.requests.append(Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=1))
            self.judge(self.session.broken_at_start)
        elif knocks:
            self.knock(data.draw(too_large(options.system, config)))

    @precondition(lambda self: not self.over and len(self.requests) < MAX_REQUESTS)
    @rule(data=st.data(), count=st.integers(1, 3))
    def arrive(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, MAX_REQUESTS - len(self.requests))):
            self.one_arrival(data, data.draw(self.generators.shapes(self.config)))

    @precondition(lambda self: not self.over and self.may_join_late())
    @rule(data=st.data(), to_border=st.booleans())
    def arrive_late(self, data: st.DataObject, to_border: bool) -> None:
        """Add a request after a batch has been decoding for a while."""
        steps = data.draw(st.integers(0, self.generators.LATE_STEPS))
        self.until_none_waits()
        # If a target hides its tokens, a request may seem to emit more than max_tokens.
        longest = max(
            [0, *(request.max_tokens - request.emitted for request in self.history.decoding())]
        )
        self.some_steps(steps % (longest + 4), to_border)
        if not self.over and self.history.decoding():
            shape = data.draw(self.generators.beside_the_batch(self.config, self.history))
            # A prompt that repeats an earlier one would not have the length that was chosen.
            own = ((self.next_name(), shape.prompt),)
            self.one_arrival(data, shape, own if data.draw(st.booleans()) else ())

    @precondition(lambda self: not self.over and len(self.requests) < MAX_REQUESTS - 1)
    @rule(data=st.data(), chunks=st.integers(0, 2))
    def arrive_during_prefill(self, data: st.DataObject, chunks: int) -> None:
        self.one_arrival(data, data.draw(self.generators.long_prompts(self.config)))
        self.some_chunks(self.requests[-1].id, chunks)
        if not self.over and self.history.ongoing():
            shape = data.draw(self.generators.beside_a_prefill(self.config, self.history))
            self.one_arrival(data, shape, ((self.next_name(), shape.prompt),))

    @precondition(lambda self: not self.over and self.may_repeat())
    @rule(data=st.data(), chunks=st.integers(0, 2), inside=st.booleans(), steps=st.integers(0, 1))
    def give_up_and_come_again(
        self, data: st.DataObject, chunks: int, inside: bool, steps: int
    ) -> None:
        """Abort a request while its prompt is computed, then send the same prompt again, at once or
        after a step."""
        self.one_arrival(data, data.draw(self.generators.shapes(self.config)))
        aborted = self.requests[-1]
        self.some_chunks(aborted.id, chunks)
        if not self.over and aborted.id in self.history.live:
            self.abort_request(aborted.id, inside)
            self.some_steps(steps, False)
            shape = self.generators.fitted(self.config, aborted.prompt, None)
            self.one_arrival(data, shape, aborted.prompt)

    @rule(steps=st.integers(1, 12), to_border=st.booleans())
    def step(self, steps: int, to_border: bool) -> None:
        self.some_steps(steps, to_border)

    @precondition(lambda self: not self.over and self.may_abort())
    @rule(which=st.integers(0, MAX_REQUESTS - 1), inside=st.booleans(), at_border=IMPATIENT)
    def abort(self, which: int, inside: bool, at_border: bool) -> None:
        """Abort a request. Half of the time, choose a request whose prompt is being computed, if
        there is one. Sometimes, abort a request right after it has begun a block."""
        if at_border:
            self.some_steps(1, to_border=True)
            if self.over or not self.may_abort():
                return
        block, decoding = self.config.get("block_size", 1), self.history.decoding()
        live = (
            [request.id for request in decoding if at_border and request.computed % block == 1]
            or [request.id for request in self.history.ongoing() if which % 2]
            or list(self.history.live)
        )
        self.abort_request(live[which % len(live)], inside)

    @precondition(lambda self: not self.over and len(self.requests) >= MAX_REQUESTS // 2)
    @rule()
    def drain(self) -> None:
        """Take steps until nothing is left to do, the bound on steps is exceeded, or the run is
        stuck."""
        bound = self.history.max_steps
        while not self.over and not self.session.is_over and self.history.busy_steps <= bound:
            if self.session.is_stuck:
                return
            self.one_step()

    def teardown(self) -> None:
        try:
            if not self.over:
                self.drain()
        finally:
            self.search.count(self.exercised, self.cut_by)
        if self.requests and self.search.failure is None:
            self.search.reach = self.search.reach.with_run(self.scenario(), self.history)
        if self.search.hooks.ended is not None and self.requests:
            whole = msgspec.structs.replace(
                self.scenario(), requests=(*self.knocked, *self.requests)
            )
            self.search.hooks.ended(kept_going(whole, self.past_end))

    def abort_request(self, name: str, inside: bool) -> None:
        index = next(i for i, request in enumerate(self.requests) if request.id == name)
        before = self.requests[index]
        if before.abort_at is None:
            self.requests[index] = msgspec.structs.replace(
                before, abort_at=self.history.step, abort_inside=inside
            )
            self.judged(self.session.abort, name, inside)
            if self.session.cannot_abort:
                self.requests[index] = before

    def one_arrival(
        self, data: st.DataObject, shape: Shape, content: tuple[Segment, ...] = ()
    ) -> None:
        """Add a request whose prompt is `content`, or by default one that suits the run."""
        if self.over:
            return
        name = self.next_name()
        content = content or data.draw(
            self.generators.contents(self.config, self.requests, name, shape.prompt)
        )
        shape = self.generators.fitted(self.config, content, shape)
        request = Request(
            id=name,
            arrival=self.history.step,
            prompt=content,
            max_tokens=shape.max_tokens,
            output_len=shape.output_len,
            priority=shape.priority if has_priorities(self.generators, self.config) else 0,
        )
        features = request_features_of(self.search.options.system)
        if features is not None and features.has_features(self.config):
            request = data.draw(features.with_features(request, self.config))
        if self.history.features.reuses_ids(self.config):
            request = msgspec.structs.replace(request, sent_as=data.draw(self.ids_of_ended()))
        self.requests.append(request)
        self.judged(self.session.add, request)
        self.search.rejected += name in self.session.rejected

    def next_name(self) -> str:
        """Return the id of the next request. If priorities decide, ids are in reverse order of
        arrival, so that a scheduler that breaks ties by id is noticed."""
        number = len(self.requests)
        backwards = orders_by_priority(self.generators, self.config)
        return f"r{MAX_REQUESTS - 1 - number if backwards else number}"

    def ids_of_ended(self) -> st.SearchStrategy[str | None]:
        """Draw the id of the first or the last request that has ended, or None."""
        unknown = {*self.history.live, *self.history.aborts_to_report, *self.session.rejected}
        over = [request.id for request in self.requests if request.id not in unknown]
        return st.sampled_from((*over[-1:], None, *over[:1], *over[-1:]))

    def knock(self, request: Request | None) -> None:
        """Send a request that can never run. If the target refuses the request, it does not become
        part of the run."""
        if request is not None:
            self.requests.append(request)
            self.judged(self.session.add, request)
            if request.id in self.session.rejected:
                self.requests.remove(request)
                self.knocked.append(request)  # another target may accept it

    def some_steps(self, steps: int, to_border: bool) -> None:
        """Take `steps` steps or, with `to_border`, continue until `steps` steps after the next
        block boundary. If no request is left, take only one step.

        Take no step before the first request arrives, because a scenario without requests cannot
        break a rule.
        """
        if not self.requests:
            return
        if to_border and not self.over:
            steps += self.generators.steps_to_border(self.config, self.history)
        for number in range(steps):
            if self.over or (number > 0 and not self.session.unfinished):
                return
            self.one_step()

    def some_chunks(self, name: str, chunks: int) -> None:
        for _ in range(PATIENCE):
            if (
                self.over
                or self.history.pause
                or name not in [request.id for request in self.history.unstarted()]
            ):
                break
            self.one_step()
        for _ in range(chunks):
            if not self.over and name in [request.id for request in self.history.ongoing()]:
                self.one_step()

    def until_none_waits(self) -> None:
        """Take steps until every request is in the batch, but at most PATIENCE steps."""
        for _ in range(PATIENCE):
            if self.over or self.history.pause:
                return
            if not (self.history.unstarted() or self.history.ongoing()):
                return
            self.one_step()

    def may_join_late(self) -> bool:
        return len(self.requests) < MAX_REQUESTS and self.session.unfinished

    def may_abort(self) -> bool:
        return self.aborts() < MAX_ABORTS and bool(self.history.live)

    def may_repeat(self) -> bool:
        return len(self.requests) < MAX_REQUESTS - 1 and self.aborts() < MAX_ABORTS

    def aborts(self) -> int:
        return sum(request.abort_at is not None for request in self.requests)

    def one_step(self) -> None:
        """Take one step. While Hypothesis shrinks, end the run at the step in which the smallest
        failure so far occurred."""
        if self.history.step > self.search.last_step:
            self.over = True
            return
        self.search.steps += 1
        if self.session.is_over or self.session.stands_still:
            self.past_end = self.history.step
        self.judged(self.session.step)
        again = [request.id for request in self.history.unstarted() if request.preemptions]
        if again and self.impatient and not self.over and self.may_abort():
            self.abort_request(again[0], inside=False)

    def judged(self, operation: Callable[..., list[Broken]], *args: Any) -> None:
        """Call the target and judge its reply. An exception ends the run."""
        self.over = True
        try:
            broken = operation(*args)
        except TargetFault as fault:
            self.search.break_off(fault)
        self.over = False
        if broken:
            self.judge(broken)

    def judge(self, broken: list[Broken]) -> None:
        """End the run if it breaks a rule that is new to the search.

        Raises:
            RuleBroken: the run breaks such a rule.
        """
        accused = self.requests[-1:] if broken[0].rule == AT_THE_DOOR else []
        scenario = self.scenario(*accused)
        new = self.new(broken, scenario)
        self.over = bool(new) or ends_run(broken)
        if self.over:
            self.cut_by = (new or broken)[0].rule
        if new and new[0].rule not in self.search.options.known:
            self.search.fail(scenario, new, self.shrink_runs)
            raise RuleBroken(new[0].rule)

    def scenario(self, *accused: Request) -> Scenario:
        """Return the run so far as a scenario. Leave out refused requests, unless all requests were
        refused. Keep the requests in `accused`, whose refusal breaks a rule."""
        refused = self.session.rejected.keys() - {request.id for request in accused}
        accepted = tuple(request for request in self.requests if request.id not in refused)
        whole = Scenario(
            system=self.search.options.system,
            revision=self.search.options.revision,
            config=self.config,
            requests=accepted or tuple(self.requests),
            events=tuple(self.events),
        )
        return kept_going(whole, self.past_end)


class OperatedMachine(SchedulerMachine):
    """A run in which an operator sometimes resets and pauses the scheduler."""

    @initialize(operated=OPERATED)
    def begin_operation(self, operated: bool) -> None:
        self.operated = operated

    def teardown(self) -> None:
        super().teardown()
        # Hypothesis may end a run between the two initial rules, and still count it. If it rejects
        # the run instead, an exception is being handled.
        if not self.begun and sys.exc_info()[0] is None:
            self.search.empty += 1

    @precondition(lambda self: self.may_operate())
    @rule(
        data=st.data(),
        kind=EVENTS,
        count=st.sampled_from((2, 0, 1, 2)),
        before=st.integers(0, 2),
        after=st.integers(0, 3),
    )
    def operate(self, data: st.DataObject, kind: str, count: int, before: int, after: int) -> None:
        """Let some requests arrive, take steps, trigger a control event, and take more steps."""
        if kind not in self.session.started.controls:
            return
        for _ in range(min(count, MAX_REQUESTS - len(self.requests))):
            self.one_arrival(data, data.draw(self.generators.shapes(self.config)))
        self.some_steps(before, False)
        if not self.over:
            self.event(kind)
            self.some_steps(1 + after, False)

    def may_operate(self) -> bool:
        return self.operated and not self.over and len(self.events) < MAX_EVENTS

    def event(self, kind: str) -> None:
        self.events.append(Event(self.history.step, kind))  # type: ignore[arg-type]
        self.judged(self.session.control, kind)

    @precondition(lambda self: not self.over and len(self.requests) >= MAX_REQUESTS // 2)
    @rule()
    def drain(self) -> None:
        """Resume the scheduler, or wake it up, and take steps until no request is left."""
        if not self.over and self.history.pause and self.session.unfinished:
            kinds = [event.kind for event in self.events if event.kind in ("sleep", "wake_up")]
            self.event("wake_up" if kinds[-1:] == ["sleep"] else "resume")
        super().drain()


def machine_of(search: Search, shrink_runs: int = 0) -> type[SchedulerMachine]:
    """Return the machine of a search, with an operator if the system has control events."""
    has_events = hasattr(generators_of(search.options.system), "CONTROLS")
    base = OperatedMachine if has_events else SchedulerMachine
    return type("BoundMachine", (base,), {"search": search, "shrink_runs": shrink_runs})
