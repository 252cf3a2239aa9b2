"""Write JUnit XML, with one test case per rule. A failed test case contains the full
explanation."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping

from ...spec.catalogue import Rule
from ..console.output import one_line
from ..judging.verdict import Found, Verdict
from .outcome import broken_off, explanation_lines, out_of_date, reason_of

# The XML element in a rule's test case, by verdict. A rule that held has none.
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


def junit(verdict: Verdict, rules: Mapping[str, Rule], found: Mapping[str, Found]) -> bytes:
    """Return the verdict as JUnit XML. `found` maps each scenario to its finding."""
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
    explanations = _explanations(verdict, rules, found)
    for entry in verdict.rules:
        title = f"{entry.id} {rules[entry.id].title}"
        case = ET.SubElement(suite, "testcase", _texts(classname=classname, name=title))
        if (element := ELEMENTS[entry.status]) is not None:
            kind = "diverges" if entry.divergence else entry.status
            what = ET.SubElement(case, element, _texts(message=reason_of(entry), type=kind))
            if entry.status == "violated":
                own = explanations.get(entry.consequence_of or entry.id)
                what.text = own or one_line(f"scenario: {entry.scenario}")
    for deviation, reason in out_of_date(verdict).items():
        case = ET.SubElement(suite, "testcase", _texts(classname=classname, name=deviation))
        ET.SubElement(case, "failure", _texts(message=reason, type="out_of_date"))
    if (why := broken_off(verdict)) is not None:
        case = ET.SubElement(suite, "testcase", _texts(classname=classname, name=WHOLE))
        ET.SubElement(case, "error", _texts(message=why, type="inconclusive"))
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _explanations(
    verdict: Verdict, rules: Mapping[str, Rule], found: Mapping[str, Found]
) -> dict[str, str]:
    faults = {fault.scenario: fault for fault in verdict.faults}
    explanations: dict[str, str] = {}
    for scenario, event in found.items():
        rule = rules[event.finding.rule]
        lines = explanation_lines(event, rule, faults.get(scenario))
        explanations.setdefault(rule.id, "\n".join(lines))
    return explanations


def _texts(**attributes: str) -> dict[str, str]:
    """Drop the characters that XML 1.0 forbids; the library escapes the rest."""
    return {name: one_line(value) for name, value in attributes.items()}
