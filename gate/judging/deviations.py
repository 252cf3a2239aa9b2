"""Read the file of known deviations, which accepts failures, with a reason, until a date.

    [[known]]
    rule = "SPY-R35"
    scenario = "schedproof-corpus/SPY-R35-0123456789.json"   # or: version = "2.5.2"
    reason = "a stale tkv idles a step, issue 123"
    until = 2027-06-30

    [[by_design]]
    rule = "V1-R09"                                          # or a pattern, such as "V1CP-*"
    reason = "our queue is ordered by deadline"

`scenario` is a path relative to the folder of this file. The entry accepts every failure of the
same shape as that of the scenario, and the consequences that the scenario shows. Each gate replays
the scenario. If it no longer breaks the rule, the gate fails, so that the entry gets removed.

An entry with `version` accepts every failure of the rule in a target that reports this version.
Such an entry may stay in the file after the rule holds again.

Rules under [[by_design]] are not judged, and every report mentions them.
"""

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from packaging.version import InvalidVersion, Version

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...properties.checking.failure_signature import shape
from ...properties.rules.predicate import Broken
from ...spec.catalogue import CatalogueError, Rule
from ..files.disk import read_toml
from ..files.scenario_file import FileError, read_scenario
from .rule_choice import excluded_ids

VALID_DATE = "valid: a date such as until = 2027-06-30"
Words = Annotated[str, msgspec.Meta(min_length=1)]
State = Literal["known", "not_met", "passes", "unused", "expired"]
# A filter. It is called with the failures of each step in turn, and returns those that are new.
New = Callable[[Sequence[Broken], Scenario], list[Broken]]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A [[known]] entry of the file. It has a `scenario` or a `version`, never both."""

    rule: Words
    reason: Words
    until: datetime.date
    scenario: Words | None = None
    version: Words | None = None


class ByDesign(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A [[by_design]] entry of the file: a rule, or a pattern of rules, that the scheduler
    breaks on purpose."""

    rule: Words
    reason: Words


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    known: tuple[Entry, ...] = ()
    by_design: tuple[ByDesign, ...] = ()


class Deviation(msgspec.Struct, frozen=True):
    """An entry of a file of deviations, with its state after a gate."""

    rule: str
    state: State
    reason: str
    until: str
    says: str
    scenario: str | None = None
    version: str | None = None

    @property
    def fails(self) -> bool:
        return self.state not in ("known", "not_met")


@dataclass
class Deviations:
    """The entries of a file of deviations and their states. Entries are identified by their number.

    Attributes:
        folder: the folder of the file, to which the paths of scenarios are relative.
        by_design: the reason for each rule that the scheduler breaks on purpose.
        scenarios: the scenario of each entry that has one.
        covered: maps a rule, or the shape of a failure, to the entry that accepts it.
        beside: for each entry, the shapes of all failures in the step that breaks its rule.
        follows: for each entry, the rules that its scenario breaks in later steps.
        status: the state of each entry once it is known, with an explanation.
    """

    entries: tuple[Entry, ...] = ()
    today: datetime.date = datetime.date.min
    by_design: Mapping[str, str] = field(default_factory=dict)
    scenarios: Mapping[int, Scenario] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    beside: dict[int, frozenset[str]] = field(default_factory=dict)
    follows: dict[int, frozenset[str]] = field(default_factory=dict)
    status: dict[int, tuple[State, str]] = field(default_factory=dict)
    folder: Path = Path()

    def begin(self, name: str, version: str) -> None:
        """Set the states that do not depend on a run: those of expired entries, and of entries for
        a version. `name` and `version` are what the target reports."""
        for number, entry in enumerate(self.entries):
            if self.today > entry.until:
                says = (
                    f"was accepted only until {entry.until}; remove the entry, or change its date"
                )
                self.status[number] = "expired", says
            elif entry.version is None:
                continue
            elif is_version(entry.version, name, version):
                self.covered.setdefault(entry.rule, number)
            else:
                self.status[number] = (
                    "unused",
                    f"{name} reports the version {version!r}; the entry must name that version",
                )

    def replayed(self, number: int, steps: Sequence[Sequence[Broken]]) -> None:
        entry, names = self.entries[number], self.scenarios[number].request_ids
        for index, broken in enumerate(steps):
            own = next((failure for failure in broken if failure.rule == entry.rule), None)
            if own is None:
                continue
            for each in _shapes(own, names):
                self.covered.setdefault(each, number)
            self.beside[number] = frozenset().union(*(_shapes(f, names) for f in broken))
            self.follows[number] = frozenset(
                failure.rule for later in steps[index + 1 :] for failure in later
            )
            self.status[number] = "known", f"step {own.step}: {own.message}"
            return
        if steps:
            first = steps[0][0]
            says = f"{first.rule} is broken in step {first.step}, but {entry.rule} is not"
            self.status[number] = "passes", f"{says}: {first.message}"
        else:
            self.status[number] = (
                "passes",
                "the scenario no longer breaks the rule; remove the entry",
            )

    def replayed_all(self) -> None:
        for number, rules in self.follows.items():
            cause = self.entries[number]
            for other, entry in enumerate(self.entries):
                same = self.scenarios.get(other) == self.scenarios.get(number)
                if same and entry.rule in rules and self.status.get(other, ("",))[0] == "known":
                    says = (
                        f"{self.status[other][1]}; it follows from {cause.rule} (known), and needs "
                    )
                    self.status[other] = "known", f"{says}no entry"

    def refused(self, number: int, why: str) -> None:
        self.status[number] = "unused", f"the target refuses the scenario: {why}"

    def in_run(self) -> New:
        """Return a filter for one run. It drops the known failures, and records which entries
        apply.

        Once an entry applies, the filter also drops the failures that the entry's scenario shows in
        the same step and later.
        """
        follows: set[str] = set()

        def new(broken: Sequence[Broken], scenario: Scenario) -> list[Broken]:
            names, known = scenario.request_ids, set[str]()
            shapes = [_shapes(failure, names) for failure in broken]
            for failure, own in zip(broken, shapes, strict=True):
                numbers = (self.covered.get(key) for key in (failure.rule, *sorted(own)))
                number = next((number for number in numbers if number is not None), None)
                if number is not None:
                    self.status.setdefault(number, ("known", failure.message))
                    known |= own | self.beside.get(number, frozenset())
                    follows.update(self.follows.get(number, ()))
            return [
                failure
                for failure, own in zip(broken, shapes, strict=True)
                if not own & known and failure.rule not in follows
            ]

        return new

    def of_rule(self, rule: str) -> Entry | None:
        known = (n for n, (state, _) in self.status.items() if state == "known")
        return next((self.entries[n] for n in known if self.entries[n].rule == rule), None)

    def judged(self, rules: Sequence[str], stakes: Mapping[str, int]) -> list[Deviation]:
        """Return the states of the entries for these rules. `stakes` gives the number of steps that
        exercised each rule."""
        verdicts = []
        for number, entry in enumerate(self.entries):
            if entry.rule in rules:
                state, says = self.status.get(number) or _never_met(stakes.get(entry.rule, 0))
                verdicts.append(
                    Deviation(
                        *(entry.rule, state, entry.reason, str(entry.until), says),
                        *(entry.scenario, entry.version),
                    )
                )
        return verdicts


def _shapes(failure: Broken, names: Sequence[str]) -> frozenset[str]:
    """Return the shapes that a failure may have. An id such as "a" may be a word of the message or
    the name of a request. One shape takes such ids as names, the other as words."""
    return frozenset(
        shape(failure, ids) for ids in (names, [name for name in names if not name.isalpha()])
    )


def _never_met(exercised: int) -> tuple[State, str]:
    if exercised == 0:
        return "not_met", "the rule was never exercised"
    return "not_met", f"the rule held in all {exercised} steps that exercised it"


def is_version(given: str, name: str, version: str) -> bool:
    """Return whether the version in an entry matches the version of a target.

    The entry may say 0.33 for 0.33.0, and may prefix the version with the target's name.
    """
    if given == version:
        return True
    *title, number = given.split()
    *own_title, own_number = version.split() or [""]
    if title and " ".join(title) not in (name, " ".join(own_title)):
        return False
    try:
        return Version(number) == Version(own_number)
    except InvalidVersion:
        return number == own_number


def read_deviations(
    path: Path, system: str, catalogue: Sequence[Rule], today: datetime.date
) -> Deviations:
    """Read a file of deviations and their scenarios."""
    read = _read(path)
    entries = read.known
    ids = {rule.id for rule in catalogue}
    by_design = _by_design(path, read.by_design, catalogue)
    scenarios = {}
    for number, entry in enumerate(entries):
        place = f"{path}: $.known[{number}]"
        if entry.rule not in ids:
            raise FileError(
                f"{place}.rule: {entry.rule!r} is not a rule of {system}; "
                f"`schedproof rules --system {system}` lists them"
            )
        if entry.rule in by_design:
            raise FileError(
                f"{place}.rule: {entry.rule} is also in [[by_design]]; valid: one of the two"
            )
        if (entry.scenario is None) == (entry.version is None):
            given = "neither is" if entry.scenario is None else "both are"
            raise FileError(f"{place}: {given} given; valid: either scenario or version")
        if entry.version is not None and not entry.version.strip():
            raise FileError(f"{place}.version: {entry.version!r}; valid: a version")
        if entry.scenario is not None:
            try:
                scenarios[number] = read_scenario(path.parent / entry.scenario)
            except FileError as error:
                raise FileError(f"{place}.scenario: {error}") from None
            if scenarios[number].system != system:
                raise FileError(
                    f"{place}.scenario: {entry.scenario!r} belongs to "
                    f"{scenarios[number].system}, but the gate judges {system}"
                )
    return Deviations(entries, today, by_design, scenarios, folder=path.parent)


def _by_design(
    path: Path, entries: Sequence[ByDesign], catalogue: Sequence[Rule]
) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for number, entry in enumerate(entries):
        try:
            for rule in excluded_ids(catalogue, [entry.rule]):
                reasons[rule] = f"by design: {entry.reason}"
        except CatalogueError as error:
            raise FileError(f"{path}: $.by_design[{number}].rule: {error}") from None
        except InputError as error:
            raise FileError(f"{path}: $.by_design[{number}].rule: {error.problem}") from None
    return reasons


def _read(path: Path) -> _File:
    try:
        read = read_toml(path, "file of deviations")
    except FileError as error:
        if re.search(r"\): 'until\b", str(error)):
            raise FileError(f"{error}; {VALID_DATE}") from None
        raise
    try:
        return msgspec.convert(read, _File)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).rpartition(" - at `$")
        place = place.rstrip("`")
        if problem and place.endswith(".until"):
            entry = read["known"][int(place.partition("[")[2].partition("]")[0])]
            why = f"${place}: {str(entry['until'])!r:.60} is not a date"
            raise FileError(f"{path}: {why}; {VALID_DATE}") from None
        where = f"${place}: {problem}" if problem else f"$: {error}"
        valid = "rule, reason, until and either scenario or version"
        raise FileError(
            f"{path}: {where}; valid: entries [[known]] with {valid}, and entries [[by_design]] "
            "with rule and reason"
        ) from None
