"""Replay a scenario of a corpus, and compare the result with its expectation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.faults import ConfigRefused, TargetFault, TargetNotStarted
from ...model.scenario import Expectation, Scenario
from ...model.target import Target
from ...properties.checking.replay import Outcome, replay
from ...properties.rules.predicate import Broken
from ...properties.rules.registry import applies
from ...spec.catalogue import Rule, load, meant
from ...spec.systems import SYSTEMS
from ..console.option_checks import rule_words
from ..files.scenario_file import scenario_of
from ..targets.factory import opened
from ..targets.target_spec import parse_target
from .folder import FoundOn, origin_of

Status = Literal["as expected", "NOT AS EXPECTED", "not exercised", "inconclusive"]


class EntryVerdict(NamedTuple):
    """The result of a replay, compared with the expectation of the scenario. `why` is set if it is
    unexpected or inconclusive, `outcome` is None if the target did not run it, and `refused` says
    that the target refuses the configuration or every request."""

    status: Status
    why: str
    outcome: Outcome | None = None
    refused: bool = False

    @property
    def broken(self) -> Broken | None:
        return self.outcome.broken[0] if self.outcome and self.outcome.broken else None


def judge(
    target: Target,
    scenario: Scenario,
    rule: str,
    rules: Sequence[Rule],
    found_on: FoundOn | None = None,
) -> EntryVerdict:
    """Replay a scenario about `rule`, judged by `rules`, and compare the result with its
    expectation.

    A scenario without an expectation expects every rule to hold. On a target other than `found_on`,
    only the scenario's own rule has to hold. A rule that is expected to break may also break later
    than other rules.
    """
    if scenario.expect is None:
        scenario = expecting(scenario, None)
    try:
        outcome = replay(target, scenario, rules)
    except TargetNotStarted:
        raise
    except (ConfigRefused, InputError) as error:
        why = f"the target refuses the configuration: {error}"
        return EntryVerdict("not exercised", why, refused=True)
    except TargetFault as fault:
        return EntryVerdict("inconclusive", str(fault))
    if scenario.expect and scenario.expect.holds and outcome.broken:
        own = [own_rule for own_rule in rules if own_rule.id == rule]
        if own and rule not in [failure.rule for failure in outcome.broken]:
            return _of_its_own_rule(target, scenario, own, outcome, found_on)
    if outcome.unmet:
        violates = (scenario.expect and scenario.expect.violates) or ()
        expected = [own_rule for own_rule in rules if own_rule.id in violates]
        alone = replay(target, scenario, expected) if outcome.broken and expected else None
        if alone is not None and not alone.unmet:
            others = ", ".join(failure.rule for failure in outcome.broken)
            return EntryVerdict(
                "as expected",
                f"{others} {'break' if len(outcome.broken) > 1 else 'breaks'} before it",
                alone,
            )
        return EntryVerdict("NOT AS EXPECTED", "; ".join(outcome.unmet), outcome)
    if len(outcome.session.rejected) == len(scenario.requests):
        why = "the target refuses every request"
        return EntryVerdict("not exercised", why, outcome, refused=True)
    violates = (scenario.expect and scenario.expect.violates) or ()
    if violates and not outcome.broken:
        why = f"no rule broke, expected {', '.join(violates)}"
        checked = {known.id for known in outcome.session.checked}
        unseen = ", ".join(violation for violation in violates if violation not in checked)
        if unseen:
            return EntryVerdict("not exercised", f"{unseen} cannot be checked here", outcome)
        return EntryVerdict("NOT AS EXPECTED", why, outcome)
    if not outcome.broken and not outcome.finished:
        return EntryVerdict("inconclusive", f"not finished after {outcome.steps} steps", outcome)
    if not outcome.broken and not outcome.exercised[rule]:
        why = f"{rule} is never exercised on this target, or cannot be checked there"
        return EntryVerdict("not exercised", why, outcome)
    return EntryVerdict("as expected", "", outcome)


def _of_its_own_rule(
    target: Target,
    scenario: Scenario,
    own: Sequence[Rule],
    outcome: Outcome,
    found_on: FoundOn | None,
) -> EntryVerdict:
    rule, started = own[0].id, outcome.session.started
    here = " ".join(word for word in (started.name, started.version) if word)
    others = ", ".join(failure.rule for failure in outcome.broken)
    beside = f"another rule breaks there: {others}"
    alone = replay(target, scenario, own)
    if alone.broken and alone.broken[0].rule == rule:
        return EntryVerdict("NOT AS EXPECTED", f"{rule} breaks on {here}; {beside}", alone)
    if not alone.exercised[rule]:
        why = f"{rule} is never exercised on {here}, or cannot be checked there; {beside}"
        return EntryVerdict("NOT AS EXPECTED", why, outcome)
    if found_on is None or not found_on.name or found_on.name == started.name:
        return EntryVerdict("NOT AS EXPECTED", f"{rule} holds on {here}; {beside}", outcome)
    only = f"it broke only on {found_on}"
    return EntryVerdict("as expected", f"{rule} holds on {here} ({only}); {beside}", outcome)


def expecting(scenario: Scenario, violates: Sequence[str] | None) -> Scenario:
    """Return the scenario with a new expectation. It expects the rules of `violates` to break in
    the same step, or, with None, every rule to hold."""
    reported = Expectation(violates=tuple(violates)) if violates else Expectation(holds=True)
    return replace(scenario, expect=reported)


def rules_for(scenario: Scenario, ids: Sequence[str] = ()) -> list[Rule]:
    catalogue = load(scenario.system, scenario.revision or "")
    return [
        rule
        for rule in catalogue
        if applies(rule, scenario.revision or "") and (not ids or rule.id in ids)
    ]


def rule_ids(words: Sequence[str] | None) -> list[str]:
    """Return the ids that --rule names; `A,B` counts as A and B."""
    every = {rule.id: rule for system in SYSTEMS for rule in load(system)}
    return list(meant([*every.values()], rule_words("--rule", words or ())))


@contextmanager
def opened_target(spec: str) -> Iterator[Target]:
    """Open the target of an exported test file, for all of its tests."""
    with opened(parse_target(spec)) as open_target:
        yield open_target.target


def check(data: dict[str, Any], target: Target) -> str:
    """Replay the scenario of an exported test; return why it does not end as expected, or "". Raise
    FileError if `data` is not a scenario of a corpus."""
    scenario = scenario_of(data, "the exported scenario")
    rule = origin_of(scenario, "the exported scenario").rule
    judged = judge(target, scenario, rule, rules_for(scenario))
    if judged.status == "as expected":
        return ""
    numbers = f" ({judged.broken.message})" if judged.broken else ""
    return f"{judged.status}: {judged.why}{numbers}"
