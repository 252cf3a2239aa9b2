"""Replay one scenario on one target, and judge every step until the end."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...model.errors import InputError
from ...model.observation import FIELDS, Step
from ...model.scenario import Scenario
from ...model.systems import full_config, resolve_revision
from ...model.target import Target
from ...spec.catalogue import Rule
from ..rules.predicate import Broken
from ..rules.registry import ends_run
from .session import Session


@dataclass
class Outcome:
    """The outcome of a replay.

    Attributes:
        broken: the rules that the first faulty step breaks; the first of these rules is reported.
        steps: the number of steps that ran.
        finished: whether every accepted request has finished, or waits for a paused scheduler.
        cut_short: whether a broken rule ended the run.
        exercised: for each rule, the number of steps in which its witness occurred.
        session: the run itself.
        unmet: the expectations in `expect` that the run did not meet.
    """

    session: Session
    broken: list[Broken] = field(default_factory=list)
    steps: int = 0
    finished: bool = False
    cut_short: bool = False
    exercised: Counter[str] = field(default_factory=Counter)
    unmet: list[str] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """Return counts of steps and rejected requests, keyed as in `Search.counts`."""
        return Counter(runs=1, steps=self.steps, rejected=len(self.session.rejected))


def replay(
    target: Target,
    scenario: Scenario,
    rules: Sequence[Rule],
    watch: Callable[[int, Step], None] | None = None,
    last_step: int | None = None,
    new: Callable[[list[Broken], Scenario], list[Broken]] = lambda broken, _: broken,
    begun: Callable[[Session], None] | None = None,
    skipped: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run the scenario until every request has finished or a step breaks a rule.

    `watch` receives every step, and the run ends after `last_step`. `new` receives the rules that a
    step breaks, and returns those that were not known to be broken. If it returns none, the run
    continues, unless the target has crashed or hung. `begun` is called with the session before its
    first step.

    If `skipped` is given, steps in which a model only waits for a request to arrive are skipped.
    `skipped` is then called with the numbers of the first and the last skipped step. A run whose
    requests do not finish within the bound of rule ALL-R06 stops there, whether or not that rule is
    among `rules`. If it is not, a run without progress stops earlier (`Session.is_stuck`).

    Raises:
        InputError: the scenario's configuration is impossible, or `expect` names an unknown field.
        ConfigRefused, TargetFault: the target cannot run the scenario.
    """
    _check_fields(scenario)
    revision = resolve_revision(scenario.system, scenario.revision)
    config = full_config(scenario.system, revision, scenario.config)
    exercised: Counter[str] = Counter()
    session = Session(target, scenario.system, revision, config, rules, exercised)
    outcome = Outcome(session, exercised=exercised)
    if begun is not None:
        begun(session)
    if session.broken_at_start:
        outcome.broken = new(session.broken_at_start, scenario)
        outcome.cut_short = True
        outcome.unmet = _unexpected(scenario, outcome.broken, {rule.id for rule in rules})
        return outcome
    arrivals = sorted(scenario.requests, key=lambda request: request.arrival)
    events = {event.step for event in scenario.events} | {
        at for request in scenario.requests for at in (request.arrival, request.abort_at or 0)
    }
    listed = {entry["step"]: entry for entry in _expected_steps(scenario) if "step" in entry}
    last = max((*events, *listed))
    while True:
        number = outcome.steps
        broken = client_actions(session, scenario, arrivals, number)
        outcome.broken = new(broken, scenario)
        if not (outcome.broken or ends_run(broken)):
            broken = session.step()
            outcome.broken = new(broken, scenario)
        if session.recent and session.recent[-1][0] == number:
            step = session.recent[-1][1]
            outcome.steps += 1
            if watch is not None:
                watch(number, step)
            outcome.unmet += _differences(number, listed.get(number), step)
        outcome.cut_short = bool(outcome.broken) or ends_run(broken)
        if outcome.cut_short or number == last_step:
            break
        if number >= last and (session.is_over or session.stands_still):
            outcome.finished = True
            break
        history = session.monitor.history
        if history.busy_steps > history.max_steps or (number >= last and session.is_stuck):
            break
        if skipped is not None and number < last and session.at_rest:
            after = min(at for at in (*events, *listed) if at > number)
            after = after if last_step is None else min(after, last_step)
            if after > outcome.steps:
                skipped(outcome.steps, after - 1)
                outcome.steps = session.skip_to(after)
    if last_step is None:
        ran = f"the run ends after {outcome.steps}"
        late = [number for number in sorted(listed) if number >= outcome.steps]
        outcome.unmet += [f"step {number} is expected, but {ran}" for number in late]
    outcome.unmet += _unexpected(scenario, outcome.broken, {rule.id for rule in rules})
    return outcome


def client_actions(
    session: Session, scenario: Scenario, arrivals: list[Any], number: int
) -> list[Broken]:
    """Perform the client's actions before a step: first the arrivals, then the aborts, then the
    control events. Return the broken rules.

    `arrivals` contains the requests that have not arrived yet, in order. Requests that arrive
    before this step are removed from it.
    """
    broken: list[Broken] = []
    while arrivals and arrivals[0].arrival == number:
        broken += session.add(arrivals.pop(0))
        if ends_run(broken):
            return broken
    for request in scenario.requests:
        if request.abort_at == number and request.id not in session.rejected:
            broken += session.abort(request.id, request.abort_inside)
            if ends_run(broken):
                return broken
    for event in scenario.events:
        if event.step == number:
            broken += session.control(event.kind)
            if ends_run(broken):
                return broken
    return broken


def _check_fields(scenario: Scenario) -> None:
    for index, entry in enumerate(_expected_steps(scenario)):
        for name in entry.keys() - FIELDS - {"step"}:
            raise InputError(
                f"$.expect.steps[{index}].{name}",
                f"unknown field; valid: step, {', '.join(sorted(FIELDS))}",
            )


def _unexpected(scenario: Scenario, broken: list[Broken], checked: set[str]) -> list[str]:
    if scenario.expect is None:
        return []
    names = [finding.rule for finding in broken]
    named = ", ".join(names) or "no rule"
    expected = [rule for rule in scenario.expect.violates or () if rule in checked]
    holds = scenario.expect.holds or not (scenario.expect.violates or scenario.expect.steps)
    if holds and names:
        return [f"the run breaks {named}; expected that every rule holds"]
    if expected and set(names) != set(expected):
        return [f"the run breaks {named}; expected {', '.join(expected)}"]
    return []


def _expected_steps(scenario: Scenario) -> Sequence[dict[str, Any]]:
    return (scenario.expect.steps or ()) if scenario.expect is not None else ()


def _differences(number: int, expected: dict[str, Any] | None, step: Step) -> list[str]:
    if expected is None:
        return []
    differences = []
    for name, value in expected.items():
        seen = _plain(getattr(step, name)) if name != "step" else number
        if seen != value:
            differences.append(f"step {number}: {name} is {_json(seen)}, expected {_json(value)}")
    return differences


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
