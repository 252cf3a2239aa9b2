"""The result of a gate as data: `schedproof/verdict@1`."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from ...model.replies import StartUp
from ...properties.search.state import Reach
from ..console import BROKEN, CONFORMS, INCONCLUSIVE
from .coverage import Coverage
from .deviations import Deviation

FORMAT = "schedproof/verdict@1"
NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(?![\w.]*\d)")  # a value, no part of a version
NOT_SHOWN = "the target does not show "  # followed by the fields that a rule needs
Status = Literal[
    "held",
    "violated",
    "known",
    "excluded",
    "not_observable",
    "not_exercised",
    "inconclusive",
    "planned",
]


class TargetInfo(msgspec.Struct, frozen=True):
    """The target: its name on the command line, and the name and version that it reports."""

    spec: str
    name: str
    version: str


WORKLOADS = "workloads"  # the scales of this engine are shapes of workloads
OWN_CORPUS = "own corpus"
# Engines whose configurations are those of a scale that the target has accepted, except in the
# published scenarios, which a target may well be too small for.
SCALED, PUBLISHED = ("corpus", "hypothesis", WORKLOADS), "production"


class EngineRun(msgspec.Struct, frozen=True):
    """One engine at one scale, with its runs, steps and seconds."""

    name: str
    scale: str
    runs: int
    steps: int
    seconds: float
    refused_configs: int = 0
    rejected_requests: int = 0
    complete: bool = True

    @classmethod
    def of(
        cls, name: str, scale: str, totals: Counter[str], seconds: float, complete: bool
    ) -> "EngineRun":
        counted = (totals["runs"], totals["steps"], seconds, totals["refused"], totals["rejected"])
        return cls(name, scale, *counted, complete)


class Finding(msgspec.Struct, frozen=True):
    """One counterexample. `found_after` and `shrunk_in` are in seconds.

    Attributes:
        behind: rules that the same run breaks earlier; this failure may be their consequence.
        replay: the command that replays it.
        needs: the features without which the rule does not break; None if it was not shrunk.
        differs: the fields that differ in the first step that is not as the model's; None if no
            model runs beside the target.
        others_first: number of broken rules that were shrunk instead of this one; 0 if it was
            shrunk.
        decided: file and line of the scheduler that raised or hung, if known.
        only_here: the lines, FILE:LINES, that its run executed and the nearest passing runs did
            not; `nearest` counts these passing runs.
        by_adapter: the adapter must be the cause, whatever the scheduler decided.
        start_up: for a release, whether its server starts with this configuration.
    """

    rule: str
    engine: str
    scale: str
    scenario: str
    step: int
    message: str
    requests: int
    consequences: tuple[str, ...]
    found_after: float
    shrunk_in: float
    divergence: str | None = None
    behind: tuple[str, ...] = ()
    replay: str = ""
    needs: tuple[str, ...] | None = None
    differs: str | None = None
    others_first: int = 0
    decided: str | None = None
    only_here: tuple[str, ...] = ()
    nearest: int = 0
    by_adapter: bool = False
    start_up: StartUp | None = None

    @property
    def rules(self) -> frozenset[str]:
        return frozenset((self.rule, *self.consequences))

    @property
    def costs(self) -> bool:
        """Return whether the finding counts for --max-failures."""
        return not self.others_first and not self.divergence


class Fault(msgspec.Struct, frozen=True):
    """A fault: the findings that one change is likely to repair.

    Attributes:
        number: the number of the fault, from 1; faults that are worst for users of the engine come
            first.
        kind: crash, hang, request, blocks, tokens, wait, limit, decision, door or adapter.
        means: what a user of the engine sees.
        rule: the rule that breaks first; scenario, step, message and replay belong to this finding.
        follows: rules that break as a consequence, or for the same reason.
        scenarios: the scenario files of all its findings; that of `rule` comes first.
        scales: the scales at which it was found.
        needs: the features without which it does not happen.
        accept: an entry that accepts the fault, to be copied into a file of deviations.
        behind: the number of a fault that broke earlier in the same run; this one may be its
            consequence.
        divergence: the known divergence of releases that explains it.
        shrunk: whether its scenario was shrunk.
        decided, only_here, nearest: as in a finding.
    """

    number: int
    kind: str
    means: str
    rule: str
    step: int
    message: str
    scenario: str
    replay: str
    accept: str
    follows: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    behind: int | None = None
    divergence: str | None = None
    shrunk: bool = True
    decided: str | None = None
    only_here: tuple[str, ...] = ()
    nearest: int = 0


class Refusal(msgspec.Struct, frozen=True):
    """Configurations that the target refused for the same reason: their number, and the first
    message."""

    count: int
    message: str


class RuleVerdict(msgspec.Struct, frozen=True):
    """The verdict on one rule. `exercised` counts the steps in which its witness occurred.

    The status "known" means that the user's file of deviations lists every failure of the rule.
    "excluded" means that the user excluded the rule, for the reason in `message`. `divergence`
    describes releases, like this target, that are known to break the rule. `fault` is the number of
    the fault that broke it.
    """

    id: str
    status: Status
    step: int | None = None
    scenario: str | None = None
    message: str | None = None
    consequence_of: str | None = None
    exercised: int = 0
    divergence: str | None = None
    fault: int | None = None


class Change(msgspec.Struct, frozen=True):
    """A behaviour in which the change differs from its base, with the smallest scenario that shows
    it.

    `what` is a kind of decision, or a rule that the change repairs. `replay` is the command that
    replays the scenario.
    """

    what: str
    scenario: str
    step: int
    message: str
    replay: str
    runs: int = 1


class Verdict(msgspec.Struct, frozen=True):
    """The result of a gate; `fault` says why it ended early, if it did.

    `faults` groups the findings by cause. `deviations` lists the entries of the user's file with
    their states. `config` holds the keys that the user fixed in every run. `coverage` covers the
    target's own modules, if it can be measured. `reach` has the sizes and features of the runs.

    With a `base`, a rule is "known" if the base has the same failures in the same scenarios.
    `repaired` lists rules that only the base breaks, and `decisions` the kinds of decision that
    differ.
    """

    target: TargetInfo
    system: str
    revision: str
    profile: str
    seed: int
    engines: tuple[EngineRun, ...]
    rules: tuple[RuleVerdict, ...]
    findings: tuple[Finding, ...]
    exit_code: int
    deviations: tuple[Deviation, ...] = ()
    interrupted: bool = False
    fault: str | None = None
    config: dict[str, Any] = {}
    faults: tuple[Fault, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    base: TargetInfo | None = None
    repaired: tuple[Change, ...] = ()
    decisions: tuple[Change, ...] = ()
    coverage: Coverage | None = None
    reach: Reach | None = None
    format: str = FORMAT


def refusals(messages: Counter[str]) -> tuple[Refusal, ...]:
    """Group the target's refusals that differ only in numbers, the most frequent first."""
    grouped: dict[str, list[str]] = {}
    for message in messages:
        grouped.setdefault(NUMBER.sub("#", message), []).append(message)
    refusals = [
        Refusal(sum(messages[finding] for finding in group), group[0]) for group in grouped.values()
    ]
    return tuple(sorted(refusals, key=lambda refusal: -refusal.count))


def not_judged(engines: Iterable[EngineRun]) -> list[str]:
    """Return a line for each part of a gate that the target refused to run, so that nothing in it
    was judged: an entry of the user's corpus, a scale, or the workloads."""
    lines, steps, refused = list[str](), Counter[str](), Counter[str]()
    for engine in engines:
        if engine.name == OWN_CORPUS and engine.refused_configs:
            number, entries = (
                engine.refused_configs,
                "entry" if engine.refused_configs == 1 else "entries",
            )
            lines.append(f"{number} {entries} of the corpus, which the target refuses")
        elif engine.name in SCALED and engine.scale != PUBLISHED:
            part = WORKLOADS if engine.name == WORKLOADS else f"scale {engine.scale}"
            steps[part] += engine.steps
            refused[part] += engine.refused_configs
    return lines + [
        f"{part}, because the target refuses each of its {number} configurations"
        for part, number in refused.items()
        if number and not steps[part]
    ]


def exit_code(
    rules: tuple[RuleVerdict, ...],
    named: Collection[str],
    interrupted: bool,
    deviations: tuple[Deviation, ...] = (),
) -> int:
    """Return 0 if the target conforms, 1 if a rule is broken or a deviation is out of date, and 3
    if the verdict is inconclusive.

    Rules that the user named in full must have been exercised, because they would pass vacuously
    otherwise. Without such rules, one exercised rule is enough, and the report names the others.
    """
    statuses = [rule.status for rule in rules]
    if "violated" in statuses:
        return BROKEN
    if interrupted or "inconclusive" in statuses or not {"held", "known"} & {*statuses}:
        return INCONCLUSIVE
    if any(deviation.fails for deviation in deviations):
        return BROKEN
    if any(rule.id in named and rule.status not in ("held", "known") for rule in rules):
        return INCONCLUSIVE
    return CONFORMS
