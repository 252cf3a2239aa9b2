"""The matrix as data, `schedproof/matrix@1`, and as a page: which rules broke in which releases."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from ..judging.verdict import RuleVerdict
from .cells import CellVerdict, scenario_of

FORMAT = "schedproof/matrix@1"
BROKEN: Literal["violated"] = "violated"


class Releases(NamedTuple):
    """Consecutive releases of one name, from `first` to `last`."""

    first: str
    last: str

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Row(msgspec.Struct, frozen=True):
    """A rule that breaks in some release, in one configuration. `states` has its status in each
    version, `broken` the releases that break it, and `scenario` the smallest run that does."""

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
    """One release in one configuration: how many rules held and broke, or why there is no
    verdict."""

    name: str
    version: str
    configuration: str
    held: int = 0
    broken: int = 0
    inconclusive: int = 0
    problem: str = ""


class Matrix(msgspec.Struct, frozen=True):
    """The results of all gates."""

    profile: str
    seed: int
    entries: tuple[Entry, ...]
    rows: tuple[Row, ...]
    format: str = FORMAT


def matrix_of(judged: Sequence[CellVerdict], profile: str, seed: int) -> Matrix:
    """Return the matrix of these cells. The releases of each name must be in order."""
    by_kind: dict[tuple[str, str], list[CellVerdict]] = {}
    for result in judged:
        name, _, configuration = _place(result)
        by_kind.setdefault((name, configuration), []).append(result)
    rows: list[Row] = []
    for results in by_kind.values():
        rows += _rows([result for result in results if result.verdict is not None])
    return Matrix(profile, seed, tuple(_entry(result) for result in judged), tuple(rows))


def page_of(matrix: Matrix, command: str) -> str:
    environment = Environment(
        loader=PackageLoader("schedproof.gate.matrix", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Markdown, not HTML
    )
    environment.filters["cell"] = lambda text: text.replace("|", "\\|").replace("\n", " ")
    return environment.get_template("page.md.jinja").render(matrix=matrix, command=command)


def spans(states: Mapping[str, str]) -> tuple[Releases, ...]:
    """Return the ranges of consecutive releases that break the rule. A release that did not
    exercise the rule does not end a range."""
    exercised = [(version, state) for version, state in states.items() if state != "not_exercised"]
    groups = groupby(exercised, key=lambda release: release[1] == BROKEN)
    broken = [[version for version, _ in group] for is_broken, group in groups if is_broken]
    return tuple(Releases(versions[0], versions[-1]) for versions in broken)


def _rows(judged: Sequence[CellVerdict]) -> list[Row]:
    states: dict[str, dict[str, str]] = {}
    breaks: dict[str, list[tuple[tuple[int, int], CellVerdict, RuleVerdict]]] = {}
    for number, result in enumerate(judged):
        assert result.verdict is not None
        sizes = {finding.scenario: finding.requests for finding in result.verdict.findings}
        for rule in result.verdict.rules:
            states.setdefault(rule.id, {})[_place(result)[1]] = rule.status
            if rule.status == BROKEN:
                order = (sizes.get(rule.scenario or "", 10**6), number)
                breaks.setdefault(rule.id, []).append((order, result, rule))
    rows = []
    for name in states:
        if name not in breaks:
            continue
        _, where, smallest = min(breaks[name], key=lambda entry: entry[0])
        release, version, configuration = _place(where)
        rows.append(
            Row(
                *(release, configuration, name, states[name], spans(states[name])),
                scenario=scenario_of(where, name),
                version=version,
                message=smallest.message or "",
                known=next((rule.divergence for *_, rule in breaks[name] if rule.divergence), None),
            )
        )
    return rows


def _entry(judged: CellVerdict) -> Entry:
    if judged.verdict is None:
        return Entry(*_place(judged), problem=judged.problem)
    counts = Counter(rule.status for rule in judged.verdict.rules)
    return Entry(
        *(*_place(judged), counts["held"], counts[BROKEN], counts["inconclusive"]),
        problem=judged.verdict.fault or "",
    )


def _place(judged: CellVerdict) -> tuple[str, str, str]:
    name, _, version = judged.cell.target.partition("==")
    return name, version, judged.cell.configuration.name
