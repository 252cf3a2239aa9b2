"""The result of a trace as data: `schedproof/trace@1`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from ...model.replies import Started
from ...properties.rules.registry import LOCKSTEP, applies
from ...spec.catalogue import Rule
from ..console import BROKEN, INCONCLUSIVE
from ..judging import verdict
from ..judging.verdict import RuleVerdict

FORMAT = "schedproof/trace@1"
NOT_SHOWN, TOO_LITTLE = "the trace does not show ", "the trace shows too little"


class First(NamedTuple):
    """Where a rule was first broken. Runs and lines are counted from 1, steps from 0.

    `consequence_of` is the rule that was broken before this one in the same step. If `by_adapter`
    is set, the adapter and not the scheduler must have caused this failure or the one before it.
    """

    run: int
    line: int
    step: int
    message: str
    consequence_of: str | None
    by_adapter: bool = False


@dataclass
class JudgedRevision:
    """The results of all runs of one system and revision.

    `started` is None until a run begins; `others` is set if a later run reports another name or
    version of the target. `unjudged` counts the steps that follow the first broken rule of their
    run. `matched` counts, for the model of each revision, the runs that it matches.
    """

    system: str
    revision: str
    rules: Sequence[Rule]
    started: Started | None = None
    others: bool = False
    observed: set[str] = field(default_factory=set)
    exercised: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    steps: int = 0
    unjudged: int = 0
    broken_runs: int = 0
    rejected: int = 0
    shows: frozenset[str] = frozenset()
    matched: Counter[str] = field(default_factory=Counter)
    first: dict[str, First] = field(default_factory=dict)

    def began(self, started: Started) -> None:
        self.runs += 1
        self.shows |= started.shows
        self.started = self.started or started
        self.others |= started[:2] != self.started[:2]

    def note(self, rule: str, place: First) -> None:
        """Record that a rule was broken at this place. Of several places, keep the one that tells
        most: a failure of the scheduler rather than of the adapter, and a first failure rather than
        a consequence."""
        known = self.first.get(rule)
        if known is None or _says_little(known) > _says_little(place):
            self.first[rule] = place

    def verdicts(self, explained: bool) -> tuple[RuleVerdict, ...]:
        """Return one verdict per rule, in catalogue order. Include the comparison with the model
        only if models ran alongside. A crash counts even if the user did not select its rule."""
        chosen = {rule.id for rule in self.rules}
        return (
            *(self._failure(rule) for rule in self.first if rule not in chosen),
            *(
                self._verdict(rule)
                for rule in self.rules
                if applies(rule, self.revision) and (explained or rule.id != LOCKSTEP)
            ),
        )

    def _failure(self, rule: str) -> RuleVerdict:
        run, line, step, message, after, by_adapter = self.first[rule]
        where = f"{'ADAPTER: ' * by_adapter}run {run}, line {line}: {message}"
        status: Literal["inconclusive", "violated"] = "inconclusive" if by_adapter else "violated"
        return RuleVerdict(
            *(rule, status, step, None, where),
            consequence_of=after,
            exercised=self.exercised[rule],
        )

    def _verdict(self, rule: Rule) -> RuleVerdict:
        stakes = self.exercised[rule.id]
        if rule.id in self.first:
            return self._failure(rule.id)
        if rule.planned:
            return RuleVerdict(rule.id, "planned", message=rule.planned)
        if rule.unchecked:
            return RuleVerdict(rule.id, "not_observable", message=rule.unchecked)
        if rule.id not in self.observed:
            missing = ", ".join(sorted(set(rule.needs) - self.shows))
            why = f"{NOT_SHOWN}{missing}" if missing else TOO_LITTLE
            if rule.id == LOCKSTEP:
                why = f"revision {self.revision} leaves such choices to implementations"
            return RuleVerdict(rule.id, "not_observable", message=why)
        if stakes == 0:
            return RuleVerdict(rule.id, "not_exercised", message=rule.witness)
        return RuleVerdict(rule.id, "held", exercised=stakes)


def _says_little(place: First) -> tuple[bool, bool]:
    return place.by_adapter, place.consequence_of is not None


class Part(msgspec.Struct, frozen=True):
    """The runs of one system and revision."""

    system: str
    revision: str
    target: verdict.TargetInfo
    runs: int
    broken_runs: int
    steps: int
    steps_not_judged: int
    rejected_requests: int
    rules: tuple[RuleVerdict, ...]
    runs_that_match: dict[str, int] | None = None


class TraceVerdict(msgspec.Struct, frozen=True):
    """The verdict on a trace."""

    file: str
    parts: tuple[Part, ...]
    exit_code: int
    cut: str | None = None
    interrupted: bool = False
    inapplicable: tuple[str, ...] = ()
    format: str = FORMAT


def conclude(
    file: str,
    judged: Sequence[JudgedRevision],
    *,
    named: Sequence[str],
    explained: bool,
    cut: str | None,
    interrupted: bool,
) -> TraceVerdict:
    """Return the verdict on all runs.

    A trace without a step is inconclusive. A trace that was cut off is also inconclusive, unless a
    rule is broken in the part before: the target may have crashed or hung where the record ends.
    """
    parts = tuple(_part(file, run, explained) for run in judged)
    codes = [verdict.exit_code(part.rules, named, interrupted) for part in parts if part.rules]
    rules = {entry.id for part in parts for entry in part.rules}
    inapplicable = tuple(rule for rule in named if parts and rule not in rules)
    if inapplicable or cut is not None or any(part.steps == 0 for part in parts):
        codes.append(INCONCLUSIVE)
    worst = BROKEN if BROKEN in codes else max(codes, default=INCONCLUSIVE)
    return TraceVerdict(file, parts, worst, cut, interrupted, inapplicable)


def _part(file: str, judged: JudgedRevision, explained: bool) -> Part:
    name, version = judged.started[:2] if judged.started else ("a target", "that did not start")
    several = " (and others)" if judged.others else ""
    return Part(
        judged.system,
        judged.revision,
        verdict.TargetInfo(file, name, f"{version}{several}"),
        judged.runs,
        judged.broken_runs,
        judged.steps,
        judged.unjudged,
        judged.rejected,
        judged.verdicts(explained),
        dict(judged.matched) if explained else None,
    )
