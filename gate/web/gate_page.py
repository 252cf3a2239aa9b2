"""Draw a whole gate on one page: each fault with its cause, and what ran or was left out."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...spec.catalogue import Rule
from ..console.output import SHOWN_DETAILS, request_lines, scenario_config
from ..files.writing import write
from ..judging.coverage import coverage_lines
from ..judging.events import Concluded, Event, Found
from ..judging.verdict import Fault, Verdict
from ..reports.outcome import broken_off, how_many, out_of_date, reach_in_words, reason_of, result
from ..reports.terminal import in_one_line
from .base.drawing import WIDE, Picture, picture
from .base.page import render_template

DRAWN = 20  # how many faults get a picture; each of the others gets a line
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


class GatePage:
    """Writes the page once there is a verdict on `rules`."""

    def __init__(self, path: Path, rules: Sequence[Rule]) -> None:
        self._path = path
        self._rules = {rule.id: rule for rule in rules}
        self._found: dict[str, Found] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Found):
            self._found[event.finding.scenario] = event
        elif isinstance(event, Concluded):
            html = gate_page(event.verdict, self._rules, self._found)
            write(self._path, html.encode("utf-8", "backslashreplace"))


def gate_page(verdict: Verdict, rules: dict[str, Rule], found: dict[str, Found]) -> str:
    """Return the page as HTML without scripts or external resources; `found` has the findings by
    scenario."""
    values: dict[str, Any] = {
        "verdict": verdict,
        "result": result(verdict),
        "how_many": how_many(verdict.faults),
        "why": broken_off(verdict),
        "out_of_date": out_of_date(verdict),
        "faults": [
            _draw(fault, rules[fault.rule], found.get(fault.scenario) if n < DRAWN else None)
            for n, fault in enumerate(verdict.faults)
        ],
        "counts": _counts(verdict),
        "groups": [
            (words, [(rules[entry.id], reason_of(entry)) for entry in entries])
            for status, words in WORDS.items()
            if (entries := [entry for entry in verdict.rules if entry.status == status])
        ],
        "engines": in_one_line(verdict.engines),
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
        details = (event.run.details or event.stderr).strip().splitlines()[-SHOWN_DETAILS:]
    show = fault.replay.replace("schedproof replay ", "schedproof show ", 1)
    drawn = picture(event.cause) if event is not None else None
    return DrawnFault(fault, rule, drawn, sent, details, show)


def _counts(verdict: Verdict) -> list[tuple[str, int]]:
    counted = Counter[str](entry.status for entry in verdict.rules)
    return [(WORDS[status], counted[status]) for status in WORDS if counted[status]]
