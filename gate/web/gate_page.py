"""Render a whole gate as one page: each fault with its cause, the runs, and the parts that were
left out. A second page shows which parts of the target's code ran, by module, function and line.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...spec.catalogue import Rule
from ..console.output import last_lines, plural, request_lines, scenario_config
from ..judging.coverage import (
    Coverage,
    FileCoverage,
    FunctionCoverage,
    coverage_lines,
    missed_lines,
    never_entered,
)
from ..judging.verdict import Fault, Found, TargetInfo, Verdict
from ..reports.outcome import broken_off, out_of_date, reach_in_words, reason_of, result
from ..reports.terminal import in_one_line, refusal_line
from .base.drawing import WIDE, Picture, picture
from .base.page import render_template

SHOWN_REFUSALS = 6
DRAWN = 20  # at most this many faults get a picture; all others get one line
WORDS = {
    "violated": "broken",
    "known": "known, and accepted",
    "inconclusive": "inconclusive",
    "excluded": "not judged, on purpose",
    "not_exercised": "never exercised",
    "not_observable": "not shown by the target",
    "held": "held in these runs",
    "planned": "not checked yet",
}


class DrawnFault(NamedTuple):
    """A fault of the verdict, with its rule, its picture and the requests of its scenario."""

    fault: Fault
    rule: Rule
    picture: Picture | None
    sent: Sequence[str]
    details: Sequence[str]
    show: str


def gate_page(verdict: Verdict, rules: Mapping[str, Rule], found: Mapping[str, Found]) -> str:
    """Return the page as HTML without scripts. `found` maps each scenario to its finding."""
    values: dict[str, Any] = {
        "verdict": verdict,
        "result": result(verdict),
        "how_many": plural(len(verdict.faults), "fault"),
        "why": broken_off(verdict),
        "out_of_date": out_of_date(verdict),
        "faults": [
            _draw(fault, rules[fault.rule], found.get(fault.scenario) if n < DRAWN else None)
            for n, fault in enumerate(verdict.faults)
        ],
        "counts": _counts(verdict),
        "groups": [
            (words, [(rules[entry.id], reason_of(entry)) for entry in entries])
            for status, words in _words(verdict).items()
            if (entries := [entry for entry in verdict.rules if entry.status == status])
        ],
        "engines": in_one_line(verdict.engines),
        "refusals": [refusal_line(refusal) for refusal in verdict.refusals[:SHOWN_REFUSALS]],
        "reach": None if verdict.reach is None else reach_in_words(verdict.reach),
        "coverage": coverage_lines(verdict.coverage) if verdict.coverage is not None else (),
        "wide": WIDE,
    }
    return render_template("gate", values, [], ["cause"])


def _draw(fault: Fault, rule: Rule, event: Found | None) -> DrawnFault:
    sent, details = list[str](), list[str]()
    if event is not None:
        sent = [scenario_config(event.scenario), *request_lines(event.scenario)]
    if event is not None and fault.kind in ("crash", "hang"):
        details = last_lines(event.run.details or event.stderr)
    show = fault.replay.replace("schedproof replay ", "schedproof show ", 1)
    drawn = picture(event.cause) if event is not None else None
    return DrawnFault(fault, rule, drawn, sent, details, show)


def _counts(verdict: Verdict) -> list[tuple[str, int]]:
    counted = Counter[str](entry.status for entry in verdict.rules)
    return [
        (words, counted[status]) for status, words in _words(verdict).items() if counted[status]
    ]


def _words(verdict: Verdict) -> dict[str, str]:
    """Return the heading of each status. With a base, "known" also covers rules that the base
    breaks, even if no entry accepts them."""
    if verdict.base is None:
        return WORDS
    return WORDS | {"known": "broken by the base as well, or accepted"}


class SourceLine(NamedTuple):
    """A line of source code. It is marked if it contains code that never ran."""

    number: int
    text: str
    missed: bool


def coverage_page(target: TargetInfo, coverage: Coverage) -> str:
    """Return the page as HTML, with the source code of functions that did not run completely."""
    sources = {file.path: _source(file) for file in coverage.files}
    values = {
        "target": f"{target.name} {target.version}",
        "lines": coverage_lines(coverage),
        "base": coverage.base,
        "changed": [function for function in never_entered(coverage) if function.function.changed],
        "files": coverage.files,
        "excerpt": lambda file, function: _excerpt(sources[file.path], function),
    }
    return render_template("coverage", values, [])


def _source(file: FileCoverage) -> list[str]:
    try:
        return Path(file.path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _excerpt(source: list[str], function: FunctionCoverage) -> list[SourceLine]:
    missed = missed_lines(function)
    numbers = range(function.line, max(missed, default=0) + 1)
    return [
        SourceLine(number, source[number - 1], number in missed)
        for number in numbers
        if number <= len(source)
    ]
