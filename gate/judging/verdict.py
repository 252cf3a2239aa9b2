"""The result of a gate as data: `schedproof/verdict@1`."""

from collections import Counter
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from ..console.exit_codes import BROKEN, CONFORMS, INCONCLUSIVE
from .deviations import Judged

FORMAT = "schedproof/verdict@1"
NOT_SHOWN = "the target does not show "  # then the fields that a rule needs
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
    """What was judged: as named on the command line, and what it says of itself."""

    spec: str
    name: str
    version: str


class EngineRun(msgspec.Struct, frozen=True):
    """One engine at one scale: how much ran, in runs, steps and seconds."""

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
        """From what was counted: runs, steps, refused, rejected."""
        counted = (totals["runs"], totals["steps"], seconds, totals["refused"], totals["rejected"])
        return cls(name, scale, *counted, complete)


class Finding(msgspec.Struct, frozen=True):
    """One counterexample. Times in seconds: until the rule first broke, then to shrink.

    `behind`: rules that the same run breaks before, of which this one may be a consequence.
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


class RuleVerdict(msgspec.Struct, frozen=True):
    """One rule. `exercised` counts the steps in which its witness occurred.

    "known": it broke as the user's file of deviations says, and not otherwise. "excluded": the user
    says that it is not meant, `message` says why.

    `divergence`: what is known of releases like the target that do otherwise than the rule says.
    """

    id: str
    status: Status
    step: int | None = None
    scenario: str | None = None
    message: str | None = None
    consequence_of: str | None = None
    exercised: int = 0
    divergence: str | None = None


class Change(msgspec.Struct, frozen=True):
    """What a change does otherwise than its base, in the smallest scenario that was found.

    `what` is a kind of decision, or a rule that the change repairs; `replay` shows it.
    """

    what: str
    scenario: str
    step: int
    message: str
    replay: str
    runs: int = 1


class Verdict(msgspec.Struct, frozen=True):
    """Everything that a gate found out; `fault` is why it broke off, where it did.

    `deviations` are the entries of the user's file, each with what became of it; `config` has the
    keys of the configuration that had one value in every run, by the user's wish.

    With a `base`, a rule that the base breaks in the same scenario is known; `repaired` are rules
    that only the base breaks, and `decisions` the kinds of decision that differ.
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
    deviations: tuple[Judged, ...] = ()
    interrupted: bool = False
    fault: str | None = None
    config: dict[str, Any] = {}
    base: TargetInfo | None = None
    repaired: tuple[Change, ...] = ()
    decisions: tuple[Change, ...] = ()
    format: str = FORMAT


def exit_code(
    rules: tuple[RuleVerdict, ...],
    named: Collection[str],
    interrupted: bool,
    deviations: tuple[Judged, ...] = (),
) -> int:
    """0 conforms, 1 a rule is broken or a deviation is out of date, 3 inconclusive.

    Rules that the user named in full must have been exercised: a pass of what never was exercised
    would be vacuous. Otherwise one exercised rule is enough, and the report names the others.
    """
    statuses = [rule.status for rule in rules]
    if "violated" in statuses:
        return BROKEN
    if interrupted or "inconclusive" in statuses or not {"held", "known"} & {*statuses}:
        return INCONCLUSIVE
    if any(one.state != "known" for one in deviations):
        return BROKEN
    if any(rule.id in named and rule.status not in ("held", "known") for rule in rules):
        return INCONCLUSIVE
    return CONFORMS
