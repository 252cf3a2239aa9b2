"""Produce the run for a page: run a scenario on a target and judge every step, or read a trace."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ....model.errors import InputError
from ....model.observation import Step
from ....model.replies import Started
from ....model.scenario import Event as ControlEvent
from ....model.scenario import Request, Scenario
from ....model.systems import full_config, resolve_revision
from ....model.target import ModelTarget, Target
from ....properties.checking.replay import replay
from ....properties.checking.session import Session
from ....properties.explanations.cause import Cause
from ....properties.explanations.evidence import Evidence
from ....properties.explanations.failure import Projected, projections
from ....properties.rules.predicate import Broken
from ....properties.rules.registry import LOCKSTEP
from ....spec.catalogue import Rule, load
from ...console.output import plural
from ...targets.target_spec import TargetSpec, blame
from ...traces.judge import TraceJudge, TraceRun
from ...traces.run_events import Aborted, Added, Begun, Controlled, Event, Rejected, Stepped
from ...traces.trace_file import Source, read_trace
from .following import MOST_STEPS, Follower, Happening


@dataclass
class RecordedRun:
    """A run, judged up to the first step that breaks a rule, with everything that a page shows.

    `scenario` contains the requests that were sent to the target; a trace may record only part of
    it. `broken` lists the rules that the last step breaks; if the target crashed, that step did not
    complete. `expected` is the last step as the model would have taken it. `projected` contains the
    volumes that admission computed, if the target's formula is known.
    """

    name: str
    scenario: Scenario
    started: Started
    checked: Sequence[Rule]
    followed: Follower
    broken: Sequence[Broken] = ()
    cause: Cause | None = None
    expected: Step | None = None
    projected: Sequence[Projected] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    details: str = ""
    ended: str = ""
    replay: str = ""
    notes: Sequence[str] = ()

    @property
    def steps(self) -> Sequence[Step]:
        return self.followed.steps

    @property
    def config(self) -> Mapping[str, Any]:
        return self.scenario.config

    def happenings(self) -> list[Happening]:
        return sorted(
            [*_client_happenings(self), *self.followed.happenings, *_judged(self)], key=_step
        )


def record_run(
    scenario: Scenario,
    target: Target | None = None,
    rules: Sequence[Rule] | None = None,
    spec: TargetSpec | None = None,
    *,
    name: str = "",
) -> RecordedRun:
    """Run a scenario on a target (default: the reference model) until it ends or a rule is broken.
    `spec` is needed to tell whether only the adapter can be to blame."""
    revision = resolve_revision(scenario.system, scenario.revision)
    config = full_config(scenario.system, revision, scenario.config)
    meant = Scenario(
        name=scenario.name,
        system=scenario.system,
        revision=revision,
        config=config,
        requests=scenario.requests,
        events=scenario.events,
    )
    sessions: list[Session] = []
    followers: list[Follower] = []
    evidence = Evidence()

    def begun(session: Session) -> None:
        sessions.append(session)
        evidence.begun(session)
        ids = [rule.id for rule in session.checked]
        followers.append(Follower(meant.system, config, ids))

    def watch(number: int, step: Step) -> None:
        monitor = sessions[0].monitor
        followers[0].follow(step, monitor.history, monitor.exercised)
        evidence.watch(number, step)

    judged = load(meant.system, meant.revision or "") if rules is None else rules

    def skipped(_: int, last: int) -> None:
        followers[0].repeat(last)

    outcome = replay(target or ModelTarget(), meant, judged, watch, begun=begun, skipped=skipped)
    session, followed = sessions[0], followers[0]
    broken = blame(outcome.broken, spec) if spec else outcome.broken
    run = RecordedRun(
        name or scenario.name or "run",
        meant,
        session.started,
        session.checked,
        followed,
        broken=broken,
        refused=session.rejected,
        details=session.details,
        ended=ended(
            *(len(followed.steps), broken),
            finished=outcome.finished,
            ran=len(session.rejected) < len(meant.requests),
        ),
    )
    if any(failure.rule == LOCKSTEP for failure in outcome.broken):
        run.expected = session.expected
    run.cause = evidence.cause(meant, outcome.broken)
    return with_projections(run)


def with_projections(run: RecordedRun) -> RecordedRun:
    if len(run.steps) <= MOST_STEPS:  # projections cannot be computed for repeated steps at once
        run.projected = projections(run.scenario, run.started.version, run.steps)
    return run


def ended(steps: int, broken: Sequence[Broken], *, finished: bool, ran: bool = True) -> str:
    """Return how a run ended, in words. `ran` means that the target accepted at least one
    request."""
    if broken:
        word = "ADAPTER: " * broken[0].by_adapter
        return f"{word}{broken[0].rule} was broken in step {broken[0].step}"
    if not ran:
        return "the target refuses every request, so there is no verdict"
    if finished:
        return f"every request has ended after {plural(steps, 'step')}, and no rule is broken"
    return f"not finished after {plural(steps, 'step')}, so there is no verdict"


def _step(happening: Happening) -> int:
    return happening.step


def _client_happenings(run: RecordedRun) -> list[Happening]:
    happenings = []
    for request in run.scenario.requests:
        if request.id in run.refused:
            why = run.refused[request.id]
            happenings.append(Happening(request.arrival, "refused", request.id, word=why))
            continue
        sizes = (request.prompt_len, request.max_tokens)
        happenings.append(Happening(request.arrival, "arrived", request.id, *sizes))
        if request.abort_at is not None:
            happenings.append(Happening(request.abort_at, "aborted", request.id))
    happenings += [Happening(e.step, "control", word=e.kind) for e in run.scenario.events]
    last = len(run.steps)
    return [failure for failure in happenings if failure.step <= last]


def _judged(run: RecordedRun) -> list[Happening]:
    limit = run.config.get("max_batch_tkv", 0)
    joins = [
        Happening(projected.step, "joins", projected.newcomer, projected.largest, limit)
        for projected in run.projected
        if projected.joined
    ]
    return joins + [
        Happening(failure.step, "broken", word=f"{failure.rule}: {failure.message}")
        for failure in run.broken
    ]


@dataclass
class _Sent:
    """The requests and aborts of one run. If a trace does not record an output length, the length
    at the end of the request is used."""

    begun: Begun
    step: int = 0
    rejected: int = 0
    requests: dict[str, Request] = field(default_factory=dict)
    open_ended: set[str] = field(default_factory=set)
    emitted: dict[str, int] = field(default_factory=dict)
    events: list[ControlEvent] = field(default_factory=list)

    def take(self, event: Event) -> None:
        if isinstance(event, Added):
            self.requests[event.request.id] = replace(event.request, arrival=self.step)
            if event.open_ended:
                self.open_ended.add(event.request.id)
        elif isinstance(event, Rejected):
            self.rejected += event.operation == "add"
        elif isinstance(event, Aborted):
            sent = self.requests.get(event.id)
            if sent is not None and sent.abort_at is None:
                self.requests[event.id] = replace(
                    sent, abort_at=self.step, abort_inside=event.inside
                )
        elif isinstance(event, Controlled):
            self.events.append(ControlEvent(self.step, event.kind))  # type: ignore[arg-type]
        elif isinstance(event, Stepped):
            self.step += 1
            for name, tokens in (event.step.emitted or {}).items():
                self.emitted[name] = self.emitted.get(name, 0) + tokens
            for name, why in (event.step.finished or {}).items():
                if why == "eos" and name in self.open_ended and self.emitted.get(name):
                    sent = self.requests[name]
                    length = min(self.emitted[name], sent.max_tokens)
                    self.requests[name] = replace(sent, output_len=length)

    def scenario(self, name: str) -> Scenario:
        return Scenario(
            name=name,
            system=self.begun.system,
            revision=self.begun.revision,
            config=self.begun.config,
            requests=tuple(self.requests.values()),
            events=tuple(self.events),
        )


def record_trace(
    source: Source,
    system: str | None = None,
    revision: str | None = None,
    rules: Sequence[str] = (),
) -> RecordedRun:
    """Return the first run of a trace that breaks one of `rules` (default: all), or else the
    first run."""
    per_run: list[_Sent] = []
    followers: dict[int, tuple[Follower, Evidence]] = {}
    first: list[RecordedRun] = []
    broken: list[RecordedRun] = []

    def watched(events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if broken:  # later events are not shown
                return
            if isinstance(event, Begun):
                per_run.append(_Sent(event))
            elif per_run:
                per_run[-1].take(event)
            yield event

    def watch(run: TraceRun, step: Step) -> None:
        monitor = run.monitor
        if run.number not in followers:
            ids = [rule.id for rule in run.checked]
            followers.clear()
            evidence = Evidence()
            evidence.follow(monitor.history, run.begun.started.version)
            followers[run.number] = Follower(run.begun.system, run.begun.config, ids), evidence
        follower, evidence = followers[run.number]
        follower.follow(step, monitor.history, monitor.exercised)
        evidence.watch(len(follower.steps) - 1, step)

    def broke(run: TraceRun) -> None:
        broken.append(_run(source.name, run, per_run[-1], followers.get(run.number)))

    def over(run: TraceRun) -> None:
        if not run.broken and not first and run.steps:
            first.append(_run(source.name, run, per_run[-1], followers.get(run.number)))

    judge = TraceJudge(source.name, rules, True, broke, over, lambda words: None, watch)
    judge.follow(watched(read_trace(source, system, revision)))
    run = next(iter(broken + first), None)
    if run is None or not run.scenario.requests:
        raise InputError(
            "FILE",
            f"{source.name} contains no run with a request; "
            "valid: a trace with at least one request",
        )
    if judge.cut is not None:
        run.notes = [*run.notes, f"line {judge.cut.line}: {judge.cut.why}"]
    return with_projections(run)


def _run(
    name: str, run: TraceRun, sent: _Sent, followed: tuple[Follower, Evidence] | None
) -> RecordedRun:
    begun = run.begun
    ids = [rule.id for rule in run.checked]
    where = f"run {run.number} of the trace, from line {begun.line}"
    notes = [f"{where} to line {run.line}" if run.broken else where]
    if sent.rejected:
        notes.append(f"{sent.rejected} requests were refused")
    if followed is None:
        followed = Follower(begun.system, begun.config, ids), Evidence()
        followed[1].follow(run.monitor.history, begun.started.version)
    follower, evidence = followed
    scenario = sent.scenario(name)
    shown = RecordedRun(
        name,
        scenario,
        begun.started,
        run.checked,
        follower,
        broken=run.broken,
        cause=evidence.cause(scenario, run.broken),
        ended=_trace_ended(run),
        notes=notes,
    )
    match = run.explainer and run.explainer.match_of(begun.revision)
    if any(failure.rule == LOCKSTEP for failure in run.broken) and match and match.departed:
        shown.expected = match.departed.ahead[0][1]
    return shown


def _trace_ended(run: TraceRun) -> str:
    if run.broken:
        return ended(run.steps, run.broken, finished=False)
    unfinished = len(run.monitor.history.live)
    open_end = f", and {unfinished} requests have not finished" if unfinished else ""
    return f"{run.steps:,} steps are recorded and no rule is broken{open_end}"
