"""The matrix as data, `schedproof/matrix@1`: which rules broke in which releases."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

import msgspec

from .cells import Asked, Judged, scenario_of

FORMAT = "schedproof/matrix@1"
BROKEN: Literal["violated"] = "violated"


class Releases(NamedTuple):
    """Releases of one name from `first` to `last`, in the order of their versions."""

    first: str
    last: str

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Row(msgspec.Struct, frozen=True):
    """One rule in one configuration, which breaks in some release.

    `states` has the status of the rule by version; `broken` the first and the last version of each
    time that it broke without a break; `scenario` the smallest that broke it, and `version` where.
    """

    name: str
    configuration: str
    rule: str
    states: Mapping[str, str]
    broken: tuple[Releases, ...]
    scenario: str
    version: str
    message: str
    known: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One release in one configuration: how many rules held and broke, or why it was not judged."""

    name: str
    version: str
    configuration: str
    held: int = 0
    broken: int = 0
    inconclusive: int = 0
    problem: str = ""


class Matrix(msgspec.Struct, frozen=True):
    """What all gates found."""

    profile: str
    seed: int
    entries: tuple[Entry, ...]
    rows: tuple[Row, ...]
    format: str = FORMAT


def matrix_of(judged: Sequence[Judged], asked: Asked) -> Matrix:
    """The matrix; the releases of one name come in the order of their versions."""
    rows: list[Row] = []
    by_kind: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        kind = (_name(one), one.cell.configuration.name)
        by_kind.setdefault(kind, []).append(one)
    for (name, configuration), there in by_kind.items():
        rows += _rows(name, configuration, [one for one in there if one.verdict is not None])
    return Matrix(asked.profile, asked.seed, tuple(_entry(one) for one in judged), tuple(rows))


def _rows(name: str, configuration: str, judged: Sequence[Judged]) -> list[Row]:
    rules: dict[str, dict[str, str]] = {}
    for one in judged:
        assert one.verdict is not None
        for rule in one.verdict.rules:
            rules.setdefault(rule.id, {})[_version(one)] = rule.status
    return [
        _row(name, configuration, rule, states, judged)
        for rule, states in rules.items()
        if BROKEN in states.values()
    ]


def _row(
    name: str, configuration: str, rule: str, states: dict[str, str], judged: Sequence[Judged]
) -> Row:
    findings: list[tuple[int, int, Judged, Any]] = []
    for number, one in enumerate(judged):
        assert one.verdict is not None
        sizes = {found.scenario: found.requests for found in one.verdict.findings}
        for verdict in one.verdict.rules:
            if verdict.id == rule and verdict.status == BROKEN:
                requests = sizes.get(verdict.scenario or "", 10**6)
                findings.append((requests, number, one, verdict))
    _, _, where, verdict = min(findings, key=lambda found: found[:2])
    return Row(
        *(name, configuration, rule, states, spans(states)),
        scenario=scenario_of(where, rule) or "",
        version=_version(where),
        message=verdict.message or "",
        known=next((found[3].divergence for found in findings if found[3].divergence), None),
    )


def spans(states: Mapping[str, str]) -> tuple[Releases, ...]:
    """The versions in a row that break the rule; one that did not exercise it parts nothing."""
    asked = [(version, state) for version, state in states.items() if state != "not_exercised"]
    found = []
    for is_broken, group in groupby(asked, key=lambda one: one[1] == BROKEN):
        versions = [version for version, _ in group]
        if is_broken:
            found.append(Releases(versions[0], versions[-1]))
    return tuple(found)


def _entry(one: Judged) -> Entry:
    place = (_name(one), _version(one), one.cell.configuration.name)
    if one.verdict is None:
        return Entry(*place, problem=one.problem)
    counts = Counter(rule.status for rule in one.verdict.rules)
    return Entry(
        *place,
        held=counts["held"],
        broken=counts[BROKEN],
        inconclusive=counts["inconclusive"],
        problem=one.verdict.fault or "",
    )


def _name(one: Judged) -> str:
    return one.cell.target.partition("==")[0]


def _version(one: Judged) -> str:
    return one.cell.target.partition("==")[2]
