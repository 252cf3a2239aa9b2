"""Make the run for a page: run a scenario on a target, judged step by step, or read a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....model.observation import Step
from ....model.replies import Started
from ....model.scenario import Scenario
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
from .following import Follower, Happening


@dataclass
class RecordedRun:
    """A run, judged up to the first step that breaks a rule, with everything that a page shows.

    Attributes:
        scenario: what the target was sent, as far as a trace records it.
        broken: the rules that the last step breaks, in order. For a crash, `step` is the step after
            the last one that completed.
        expected: the last step as the model would have taken it, if one runs beside the target.
        projected: if the target's formula is known, the volumes that admission computed for
            requests that joined and for requests that the limit kept out.
        details: the end of a traceback, or of what a crashed target wrote to stderr.
        replay: the command that repeats the run; empty if no command does.
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


def recorded(
    scenario: Scenario,
    target: Target | None = None,
    rules: Sequence[Rule] | None = None,
    *,
    name: str = "",
) -> RecordedRun:
    """Run a scenario on a target (default: the reference model) to its end or to the first broken
    rule. Errors are those of `properties.replay.replay`."""
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
    outcome = replay(target or ModelTarget(), meant, judged, watch, begun=begun)
    session, followed = sessions[0], followers[0]
    run = RecordedRun(
        name or scenario.name or "run",
        meant,
        session.started,
        session.checked,
        followed,
        broken=outcome.broken,
        refused=session.rejected,
        details=session.details,
        ended=ended(len(followed.steps), outcome.broken, finished=outcome.finished),
    )
    if any(failure.rule == LOCKSTEP for failure in outcome.broken):
        run.expected = session.expected
    run.cause = evidence.cause(meant, outcome.broken)
    return with_projections(run)


def with_projections(run: RecordedRun) -> RecordedRun:
    run.projected = projections(run.scenario, run.started.version, run.steps)
    return run


def ended(steps: int, broken: Sequence[Broken], *, finished: bool) -> str:
    if broken:
        return f"{broken[0].rule} broke at step {broken[0].step}"
    if finished:
        return f"every request has left after {_many(steps)}, and no rule is broken"
    return f"not finished after {_many(steps)}, so there is no verdict"


def _many(steps: int) -> str:
    return f"{steps:,} step{'s' * (steps != 1)}"


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
