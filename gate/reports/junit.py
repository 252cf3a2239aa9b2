"""Write JUnit XML: a test case per rule; a failed one contains the complete explanation."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from ...spec.catalogue import Rule
from ..console.output import one_line
from ..files.writing import write
from ..judging.events import Concluded, Event, Found
from ..judging.verdict import RuleVerdict, Verdict
from .outcome import broken_off, explanation_lines, out_of_date, reason_of

# The element inside a rule's test case, by verdict; there is none if the rule held.
ELEMENTS = {
    "held": None,
    "violated": "failure",
    "known": "skipped",
    "excluded": "skipped",
    "not_observable": "skipped",
    "not_exercised": "skipped",
    "inconclusive": "error",
    "planned": "skipped",
}
WHOLE = "the gate judged everything that was requested"


class JUnit:
    """Writes the file once there is a verdict on `rules`."""

    def __init__(self, path: Path, rules: Sequence[Rule]) -> None:
        self._path = path
        self._rules = {rule.id: rule for rule in rules}
        self._explanations: dict[str, str] = {}
        self._found: list[Found] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Found):
            self._found.append(event)
        elif isinstance(event, Concluded):
            faults = {fault.scenario: fault for fault in event.verdict.faults}
            for found in self._found:
                rule, fault = found.finding.rule, faults.get(found.finding.scenario)
                lines = "\n".join(explanation_lines(found, self._rules[rule], fault))
                self._explanations.setdefault(rule, lines)
            write(self._path, self._document(event.verdict))

    def _document(self, verdict: Verdict) -> bytes:
        seconds = f"{sum(engine.seconds for engine in verdict.engines):.3f}"
        suite = ET.Element("testsuite", _texts(name="schedproof", time=seconds))
        properties = ET.SubElement(suite, "properties")
        for name, value in {
            "target": f"{verdict.target.name} ({verdict.target.spec})",
            "version": verdict.target.version,
            "system": verdict.system,
            "revision": verdict.revision,
            "profile": verdict.profile,
            "seed": str(verdict.seed),
        }.items():
            ET.SubElement(properties, "property", _texts(name=name, value=value))
        classname = f"{verdict.system}.{verdict.revision}"
        for entry in verdict.rules:
            self._case(suite, classname, entry)
        for what, reason in out_of_date(verdict).items():
            case = ET.SubElement(suite, "testcase", _texts(classname=classname, name=what))
            ET.SubElement(case, "failure", _texts(message=reason, type="out_of_date"))
        why = broken_off(verdict)
        if why is not None:
            case = ET.SubElement(suite, "testcase", _texts(classname=classname, name=WHOLE))
            ET.SubElement(case, "error", _texts(message=why, type="inconclusive"))
        suite.set("tests", str(len(suite.findall("testcase"))))
        for attribute, element in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            suite.set(attribute, str(len(suite.findall(f"testcase/{element}"))))
        suites = ET.Element("testsuites")
        suites.append(suite)
        ET.indent(suites)
        document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
        return document + b"\n"

    def _case(self, suite: ET.Element, classname: str, entry: RuleVerdict) -> None:
        name = f"{entry.id} {self._rules[entry.id].title}"
        case = ET.SubElement(suite, "testcase", _texts(classname=classname, name=name))
        element = ELEMENTS[entry.status]
        if element is None:
            return
        kind = "diverges" if entry.divergence else entry.status
        what = ET.SubElement(case, element, _texts(message=reason_of(entry), type=kind))
        if entry.status == "violated":
            what.text = self._explanation(entry)

    def _explanation(self, entry: RuleVerdict) -> str:
        own = self._explanations.get(entry.consequence_of or entry.id)
        return own or one_line(f"scenario: {entry.scenario}")


def _texts(**attributes: str) -> dict[str, str]:
    """Yield texts without the characters that XML 1.0 forbids; the library escapes the rest."""
    return {name: one_line(value) for name, value in attributes.items()}
