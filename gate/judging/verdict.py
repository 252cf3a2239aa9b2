"""The result of a gate as data (`schedproof/verdict@1`), and the events from which reports are made
(`schedproof/events@1`). `docs/formats.toml` describes every field."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

import msgspec

from ...model.replies import Started, StartUp
from ...model.scenario import Scenario
from ...properties.checking.session import Excerpt
from ...properties.explanations.cause import Cause
from ...properties.search.state import Reach
from ..console import BROKEN, CONFORMS, INCONCLUSIVE
from .coverage import Coverage
from .deviations import Deviation

FORMAT = "schedproof/verdict@1"
NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(?![\w.]*\d)")  # a number that is not part of a version
NOT_SHOWN = "the target does not show "  # followed by the fields that a rule needs
AFTER_INTENDED = "broken only after an intended difference"  # followed by the number of runs
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
    """The target, as the user names it and as it reports itself."""

    spec: str
    name: str
    version: str

    @classmethod
    def of(cls, spec: str, started: Started | None) -> "TargetInfo":
        name, version = ("", "") if started is None else (started.name, started.version)
        return cls(spec, name, version)


WORKLOADS = "workloads"  # the engine whose scales are shapes of workloads
OWN_CORPUS = "own corpus"
# These engines run at a scale, in configurations that the target accepts. This does not hold for
# the built-in scenarios, whose scale is PUBLISHED: they have their own configurations, which a
# small target may well refuse.
SCALED, PUBLISHED = ("corpus", "hypothesis", WORKLOADS), "production"


class EngineRun(msgspec.Struct, frozen=True):
    """One engine at one scale."""

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
    """One counterexample."""

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
    features: tuple[str, ...] = ()
    differs: str | None = None
    others_first: int = 0
    decided: str | None = None
    place: str = ""
    only_here: tuple[str, ...] = ()
    nearest: int = 0
    own: tuple[str, ...] = ()
    by_adapter: bool = False
    start_up: StartUp | None = None

    @property
    def rules(self) -> frozenset[str]:
        return frozenset((self.rule, *self.consequences))

    @property
    def costs(self) -> bool:
        return not self.others_first and not self.divergence


class Fault(msgspec.Struct, frozen=True):
    """Findings that a single fix is likely to resolve."""

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
    """Configurations that the target refused for the same reason."""

    count: int
    message: str


class RuleVerdict(msgspec.Struct, frozen=True):
    """The verdict on one rule."""

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
    """A behaviour in which the change differs from its base, or a rule that only the base
    breaks."""

    what: str
    scenario: str
    step: int
    message: str
    replay: str
    runs: int = 1


class Verdict(msgspec.Struct, frozen=True):
    """The result of a gate. If there is a `base`, a rule is "known" if the base has the same
    failures in the same scenarios. `schedproof` is the version that gave the verdict."""

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
    schedproof: str = ""
    format: str = FORMAT


def refusals(messages: Counter[str]) -> tuple[Refusal, ...]:
    """Group the target's refusals that differ only in numbers, most frequent first."""
    grouped: dict[str, list[str]] = {}
    for message in messages:
        grouped.setdefault(NUMBER.sub("#", message), []).append(message)
    refusals = [
        Refusal(sum(messages[finding] for finding in group), group[0]) for group in grouped.values()
    ]
    return tuple(sorted(refusals, key=lambda refusal: -refusal.count))


def not_judged(engines: Iterable[EngineRun]) -> list[str]:
    """Return one line for each part of a gate in which nothing was judged because the target
    refused every scenario of this part.

    A part is a scale, the workloads, or the entries of the user's corpus that the target refused.
    """
    lines, steps, refused = list[str](), Counter[str](), Counter[str]()
    for engine in engines:
        if engine.name == OWN_CORPUS and engine.refused_configs:
            number = engine.refused_configs
            entries = "entry" if number == 1 else "entries"
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


def nothing_accepted(reach: Reach | None) -> bool:
    """Return whether the target accepted no request in any run, although there were runs."""
    return reach is not None and reach.runs > 0 and reach.requests == 0


def exit_code(
    rules: tuple[RuleVerdict, ...],
    named: Collection[str],
    interrupted: bool,
    deviations: tuple[Deviation, ...] = (),
) -> int:
    """Return 0 if the target conforms, 1 if a rule is broken or a deviation is out of date, and 3
    if the verdict is inconclusive.

    Each rule that the user named in full must have been exercised; otherwise it would pass
    vacuously. If the user named no rule, one exercised rule is enough, because the report lists the
    rules that were not exercised.
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


EVENTS_FORMAT = "schedproof/events@1"


class Began(msgspec.Struct, frozen=True, tag="began", tag_field="event"):
    """The start of a gate."""

    target: TargetInfo
    system: str
    revision: str
    profile: str
    seed: int
    scales: tuple[str, ...]
    base: TargetInfo | None = None
    format: str = EVENTS_FORMAT


class Notice(msgspec.Struct, frozen=True, tag="notice", tag_field="event"):
    """A message for the user."""

    text: str


class Differed(msgspec.Struct, frozen=True, tag="differs", tag_field="event"):
    """The first run that shows a kind of difference between a change and its base. `seconds` is the
    time from the start of the first run until this run was found."""

    what: str
    step: int
    scale: str
    seconds: float
    scenario: str

    def __str__(self) -> str:
        at = f"step {self.step}, {self.scale} scale, after {self.seconds:.1f} s"
        return f"differs {self.what}: {at}: {self.scenario}"


class Progress(msgspec.Struct, frozen=True, tag="progress", tag_field="event"):
    """The runs and steps of an engine so far."""

    engine: str
    runs: int
    of: int
    steps: int
    shrinking: bool = False


class Found(msgspec.Struct, frozen=True):
    """A counterexample that was shrunk, written to a file and replayed. `stderr` is the target's
    output in the replay. `cause` is the cause of the failure, if the run shows it."""

    finding: Finding
    scenario: Scenario
    run: Excerpt
    replay: str
    stderr: str = ""
    cause: Cause | None = None


class Concluded(msgspec.Struct, frozen=True, tag="verdict", tag_field="event"):
    """The last event of a gate, with its verdict."""

    verdict: Verdict


Event = Began | Notice | Differed | Progress | Found | Concluded
Report = Callable[[Event], None]
