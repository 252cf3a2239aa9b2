"""Judge every run of a trace in one pass, by the rules whose fields the trace shows.

Judged steps are discarded, so a trace may have any length.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ...model.faults import TargetCrashed
from ...model.observation import Step
from ...properties.checking.monitor import Monitor
from ...properties.explanations.lockstep import Explainer
from ...properties.history.features import features_of
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import (
    LOCKSTEP,
    NEVER_CRASHES,
    keeps_step,
    observable,
    predicates_of,
)
from ...spec.catalogue import Rule, load
from ..files.scenario_file import FileError
from .run_events import (
    Aborted,
    Added,
    Begun,
    Controlled,
    Crashed,
    Cut,
    Event,
    NotBegun,
    Rejected,
    Stepped,
)
from .verdict import First, JudgedRevision

CONTEXT_STEPS = 6


@dataclass
class TraceRun:
    """One run of a trace.

    `line` is the line at which the run first broke a rule; until then, it is the current line.
    `broken` lists the rules broken in that step. `unjudged` counts the steps after it, which may
    break rules as a consequence.
    """

    number: int
    begun: Begun
    checked: Sequence[Rule]
    monitor: Monitor
    explainer: Explainer | None
    line: int = 0
    steps: int = 0
    unjudged: int = 0
    broken: list[Broken] = field(default_factory=list)
    recent: deque[tuple[int, Step]] = field(default_factory=lambda: deque(maxlen=CONTEXT_STEPS))


class TraceJudge:
    """Judge the events of a trace one after the other.

    `broke` is called when a run breaks a rule, and `over` when a run has ended. `notice` receives
    messages about anything that does not belong to a run. `watch`, if given, is called after each
    judged step; the history then keeps all steps. `cut` is set if the record ends too early.
    """

    def __init__(
        self,
        name: str,
        rules: Collection[str],
        explain: bool,
        broke: Callable[[TraceRun], None],
        over: Callable[[TraceRun], None],
        notice: Callable[[str], None],
        watch: Callable[[TraceRun, Step], None] | None = None,
    ) -> None:
        self.judged: dict[tuple[str, str], JudgedRevision] = {}
        self.cut: Cut | None = None
        self.runs = 0
        self.line = 0
        self._name = name
        self._rules = rules
        self._explain = explain
        self._broke, self._over, self._notice = broke, over, notice
        self._watch = watch
        self._run: TraceRun | None = None
        self._of: JudgedRevision | None = None

    def follow(self, events: Iterable[Event]) -> None:
        """Judge all events. Raise FileError if a line breaks the protocol."""
        try:
            for event in events:
                self._take(event)
            self._check_finished()
        finally:
            self._end()

    def _check_finished(self) -> None:
        """Set `cut` if the current run was not stopped although some of its requests have not
        finished. While the scheduler is paused, requests may be unfinished. An aborted request is
        unfinished until the next step reports it.

        If another `start` follows, the current run must also have been stopped, because the server
        may have crashed and been restarted.
        """
        run = self._run
        if run is None or run.broken or self.cut is not None:
            return
        history = run.monitor.history
        unfinished = len(history.live) + len(history.aborts_to_report)
        if unfinished and not history.pause:
            are = "requests are" if unfinished > 1 else "request is"
            why = f"the record of run {run.number} ends while {unfinished} {are} unfinished"
            self.cut = Cut(self.line, why)

    def _take(self, event: Event) -> None:
        if isinstance(event, Begun | NotBegun):
            self._check_finished()
        self.line = event.line
        run = self._run
        if isinstance(event, Stepped):
            assert run is not None
            self._step(run, event)
        elif isinstance(event, Begun):
            self._end()
            self._begin(event)
        elif isinstance(event, Cut):
            self.cut = event
        elif isinstance(event, NotBegun):
            self._end()
            self._notice(f"line {event.line}: the target did not start ({event.why})")
            if event.crashed is not None:
                self._crash_at_start(event.line, *event.crashed)
        elif run is None:
            return
        elif isinstance(event, Added):
            self._add(run, event)
        elif isinstance(event, Rejected):
            self._reject(run, event)
        elif isinstance(event, Aborted):
            if not run.broken:
                run.monitor.abort(event.id, event.inside)
            if run.explainer is not None:
                run.explainer.abort(event.id, event.inside)
        elif isinstance(event, Controlled):
            if not run.broken:
                run.monitor.control(event.kind, event.done)
            if run.explainer is not None:
                run.explainer.control(event.kind, event.done)
        elif isinstance(event, Crashed):
            if not run.broken:
                self._break(run, event.line, run.monitor.crashed(event.message))
        else:
            self._end()

    def _judged(self, system: str, revision: str) -> JudgedRevision:
        if (system, revision) not in self.judged:
            catalogue = load(system, revision)
            rules = [rule for rule in catalogue if not self._rules or rule.id in self._rules]
            self.judged[system, revision] = JudgedRevision(system, revision, rules)
        return self.judged[system, revision]

    def _crash_at_start(self, line: int, system: str, revision: str, message: str) -> None:
        """Count a run without steps that breaks the rule that no operation crashes."""
        judged = self._judged(system, revision)
        self.runs += 1
        judged.runs += 1
        judged.broken_runs += 1
        judged.exercised[NEVER_CRASHES] += 1
        judged.note(
            NEVER_CRASHES, First(self.runs, line, 0, str(TargetCrashed("start", message)), None)
        )

    def _begin(self, event: Begun) -> None:
        judged = self._of = self._judged(event.system, event.revision)
        judged.began(event.started)
        self.runs += 1
        seen = observable(
            judged.rules, event.revision, event.started.shows, event.config, event.system
        )
        started = event.started
        compared = self._explain and keeps_step(
            event.system, event.revision, started.name, started.version
        )
        checked = [rule for rule in seen if compared or rule.id != LOCKSTEP]
        judged.observed |= {rule.id for rule in checked}
        monitor = Monitor(
            checked,
            predicates_of(event.system),
            event.config,
            revision=event.revision,
            system=event.system,
            exercised=judged.exercised,
        )
        forgets = self._watch is None and features_of(event.system).may_forget(event.config)
        monitor.history.forgets = forgets
        monitor.history.defaults = event.started.defaults
        explainer = None
        if self._explain:
            observes = event.started.observes
            explainer = Explainer(event.system, event.revision, event.config, observes)
        self._run = TraceRun(self.runs, event, checked, monitor, explainer)

    def _add(self, run: TraceRun, event: Added) -> None:
        request = event.request
        if not run.broken:
            if request.id in run.monitor.history.requests:
                raise FileError(
                    f'{self._name}: line {event.line}: $.request.id: "{request.id}" is already '
                    "the id of an earlier request of the run"
                )
            run.monitor.accept(request, open_ended=event.open_ended)
        if run.explainer is not None:
            run.explainer.accept(request, open_ended=event.open_ended)

    def _reject(self, run: TraceRun, event: Rejected) -> None:
        """Judge the refusal of a request, unless the reason was the request's id."""
        assert self._of is not None
        self._of.rejected += event.operation == "add"
        history = run.monitor.history
        if event.request is None or run.broken or event.request.id in history.requests:
            return
        if broken := run.monitor.refused(event.request, event.words):
            self._break(run, event.line, broken)

    def _step(self, run: TraceRun, event: Stepped) -> None:
        step, number = event.step, run.steps
        assert self._of is not None
        run.steps += 1
        self._of.steps += 1
        if run.explainer is not None:
            run.explainer.observe(step)
        if run.broken:
            run.unjudged += 1
            self._of.unjudged += 1
            return
        run.recent.append((number, step))
        broken = run.monitor.observe(step)
        if run.explainer is not None:
            broken += self._compare(run, run.explainer, step, number)
        if self._watch is not None:
            self._watch(run, step)
        if broken:
            self._break(run, event.line, broken)

    def _compare(
        self, run: TraceRun, explainer: Explainer, step: Step, number: int
    ) -> list[Broken]:
        match = explainer.match_of(run.begun.revision)
        if match is None or all(rule.id != LOCKSTEP for rule in run.checked):
            return []
        run.monitor.exercised[LOCKSTEP] += bool(step.scheduled)
        if match.departed is None:
            return []
        return [Broken(LOCKSTEP, number, "; ".join(match.departed.differences))]

    def _break(self, run: TraceRun, line: int, broken: list[Broken]) -> None:
        assert self._of is not None
        run.broken, run.line = broken, line
        self._of.broken_runs += 1
        first = broken[0]
        for failure in broken:
            place = First(
                *(run.number, line, failure.step, failure.message),
                consequence_of=None if failure.rule == first.rule else first.rule,
                by_adapter=first.by_adapter or failure.by_adapter,
            )
            self._of.note(failure.rule, place)
        self._broke(run)

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._over(run)
