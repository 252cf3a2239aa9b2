"""JUnit XML: every status has its element, and no word of a target can leave its place."""

import xml.etree.ElementTree as ET

import pytest

from schedproof.gate.console import CONFORMS, INCONCLUSIVE
from schedproof.gate.judging.verdict import Concluded, RuleVerdict, Status
from schedproof.gate.reports.junit import ELEMENTS, junit
from schedproof.gate.reports.options import FileReport

from .. import reported


def written(path, **changes):
    reporter = FileReport(path, reported.RULES, junit)
    for event in reported.events(**changes):
        assert not path.exists()
        reporter(event)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "junit.xml"


def test_a_gate_that_found_something(file, snapshot):
    assert written(file) == snapshot


def test_a_gate_that_was_broken_off_has_an_error_though_every_rule_held(file):
    held = (RuleVerdict("ALL-R01", "held", exercised=2),)
    text = written(file, rules=held, findings=(), exit_code=INCONCLUSIVE, fault="it \x00 left")
    [suite] = ET.fromstring(text)
    assert suite.attrib | {"time": ""} == {
        **{"name": "schedproof", "time": "", "tests": "2"},
        **{"failures": "0", "errors": "1", "skipped": "0"},
    }
    [error] = suite.findall("testcase/error")
    assert error.attrib == {"message": "it   left", "type": "inconclusive"}


def test_a_gate_that_conforms_has_cases_only(file):
    held = (RuleVerdict("ALL-R01", "held", exercised=2),)
    [suite] = ET.fromstring(written(file, rules=held, findings=(), exit_code=CONFORMS))
    assert [[*case] for case in suite.findall("testcase")] == [[]]


def test_hostile_words_are_text_and_nothing_else(file):
    text = written(file)
    root = ET.fromstring(text)
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property"),
        *("testcase", "failure", "skipped", "error"),
    }
    assert "<script>" in "".join(root.itertext())
    assert all(line.isprintable() for line in text.splitlines())


def test_a_consequence_carries_the_explanation_of_what_broke_first(file):
    root = ET.fromstring(written(file))
    texts = {
        case.attrib["name"].split()[0]: case.findtext("failure")
        for case in root.iter("testcase")
        if case.find("failure") is not None
    }
    assert texts["SPY-R22"] == texts["ALL-R03"]
    assert "replay:   schedproof replay" in (texts["ALL-R03"] or "")


def test_a_finding_that_was_not_heard_of_names_its_file(file):
    reporter = FileReport(file, reported.RULES, junit)
    reporter(Concluded(reported.verdict()))
    assert "scenario: out/SPY-R07-9876543210.json" in file.read_text(encoding="utf-8")


def test_every_status_has_its_element():
    assert set(ELEMENTS) == set(Status.__args__)  # type: ignore[attr-defined]
