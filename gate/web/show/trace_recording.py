"""Read a run for a page from a trace: the first run that breaks a rule, or else the first run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ....model.errors import InputError
from ....model.observation import Step
from ....model.scenario import Event as ControlEvent
from ....model.scenario import Request, Scenario
from ....properties.explanations.evidence import Evidence
from ....properties.rules.registry import LOCKSTEP
from ...traces.judge import TraceJudge, TraceRun
from ...traces.run_events import Aborted, Added, Begun, Controlled, Event, Rejected, Stepped
from ...traces.trace_file import Source, read_trace
from .following import Follower
from .recording import RecordedRun, ended, with_projections


@dataclass
class _Sent:
    """The requests and aborts of one run. If the trace omits an output length, the end of the
    request gives it."""

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


def recorded_trace(
    source: Source,
    system: str | None = None,
    revision: str | None = None,
    rules: Sequence[str] = (),
) -> RecordedRun:
    """Return the first run of a trace that breaks one of `rules` (default: all), or else the first
    run. `system` and `revision` replace the recorded ones. Raise InputError if no run has a
    request."""
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
        raise InputError("FILE", f"{source.name} holds no run with a request; valid: a trace")
    if judge.cut is not None:
        run.notes = [*run.notes, f"line {judge.cut.line}: {judge.cut.why}"]
    return with_projections(run)


def _run(
    name: str, run: TraceRun, sent: _Sent, followed: tuple[Follower, Evidence] | None
) -> RecordedRun:
    """Return a run of the trace in the form for a page; `followed` is None if its first step broke
    a rule."""
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
        ended=_ended(run),
        notes=notes,
    )
    match = run.explainer and run.explainer.match_of(begun.revision)
    if any(failure.rule == LOCKSTEP for failure in run.broken) and match and match.departed:
        shown.expected = match.departed.ahead[0][1]
    return shown


def _ended(run: TraceRun) -> str:
    if run.broken:
        return ended(run.steps, run.broken, finished=False)
    unfinished = len(run.monitor.history.live)
    open_end = f", and {unfinished} requests have not finished" if unfinished else ""
    return f"{run.steps:,} steps are recorded and no rule is broken{open_end}"
