"""SARIF 2.1.0: valid by the schema, findings at their files, known ones as what they are."""

import json

import msgspec
import pytest

from schedproof.gate.console import CONFORMS, INCONCLUSIVE
from schedproof.gate.judging.verdict import Concluded
from schedproof.gate.reports import sarif
from schedproof.gate.reports.options import FileReport

from .. import reported

# What the schema of SARIF 2.1.0 says of the objects that we write: their properties, with ! where
# it requires them. A list is of so many objects, a tuple the values that are valid, None is data.
TEXT = {"text!": str}
LOCATION = {"physicalLocation": {"artifactLocation": {"uri": str}, "region": {"startLine": int}}}
SUPPRESSION = {
    "kind!": ("inSource", "external"),
    "status": ("accepted", "underReview", "rejected"),
    "justification": str,
}
LEVEL = ("none", "note", "warning", "error")
RULE = {
    "id!": str,
    "shortDescription": TEXT,
    "fullDescription": TEXT,
    "help": TEXT,
    "defaultConfiguration": {"level": LEVEL},
    "properties": None,
}
RESULT = {
    "ruleId": str,
    "ruleIndex": int,
    "level": LEVEL,
    "message!": TEXT,
    "locations": [LOCATION],
    "partialFingerprints": {"schedproofShape/v1": str},
    "suppressions": [SUPPRESSION],
    "properties": None,
}
INVOCATION = {
    "executionSuccessful!": bool,
    "exitCode": int,
    "toolExecutionNotifications": [{"level": LEVEL, "message!": TEXT}],
}
RUN = {
    "tool!": {"driver!": {"name!": str, "version": str, "rules": [RULE]}},
    "invocations": [INVOCATION],
    "results": [RESULT],
    "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
    "properties": None,
}
LOG = {"$schema": str, "version!": ("2.1.0",), "runs!": [RUN]}


def check(value, form):
    if isinstance(form, dict):
        known = {key.removesuffix("!"): inner for key, inner in form.items()}
        assert {key.removesuffix("!") for key in form if key.endswith("!")} <= set(value)
        for key, inner in value.items():
            check(inner, known[key])
    elif isinstance(form, list):
        for inner in value:
            check(inner, form[0])
    elif isinstance(form, tuple):
        assert value in form
    elif form is not None:
        assert type(value) is form


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sarif, "__version__", "0.0.0")
    return tmp_path / "s.sarif"


def written(path, **changes):
    reporter = FileReport(path, reported.RULES, sarif.sarif)
    for event in reported.events(**changes):
        assert not path.exists()
        reporter(event)
    text = path.read_text(encoding="utf-8")
    check(json.loads(text), LOG)
    return text


def results(text):
    return json.loads(text)["runs"][0]["results"]


def test_a_gate_that_found_something(file, snapshot):
    assert written(file) == snapshot


def test_a_gate_that_conforms_has_an_empty_list(file):
    assert results(written(file, findings=(), exit_code=CONFORMS)) == []


@pytest.mark.parametrize(
    ("changes", "successful"),
    [({"fault": "it left"}, False), ({"interrupted": True}, False), ({"rules": ()}, True)],
)
def test_a_gate_that_says_less_than_was_asked_says_so(changes, successful, file):
    text = written(file, **({"findings": (), "exit_code": INCONCLUSIVE} | changes))
    [invocation] = json.loads(text)["runs"][0]["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (successful, 3)
    assert len(invocation["toolExecutionNotifications"]) == 1


def test_a_known_divergence_is_a_warning_that_nobody_has_accepted(file):
    new, known = results(written(file))
    assert new["level"] == "error"
    assert "suppressions" not in new
    assert known["level"] == "warning"
    assert [suppression["status"] for suppression in known["suppressions"]] == ["underReview"]


def test_a_rule_is_found_by_its_index(file):
    [run] = json.loads(written(file))["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def fingerprint(path, message, **origin):
    found = reported.found("out/one.json", message=message)
    found = msgspec.structs.replace(
        found, scenario=msgspec.structs.replace(found.scenario, origin=origin or None)
    )
    reporter = FileReport(path, reported.RULES, sarif.sarif)
    reporter(found)
    reporter(Concluded(reported.verdict(findings=(found.finding,))))
    return results(path.read_text(encoding="utf-8"))[0]["partialFingerprints"]


def test_failures_of_one_shape_have_one_fingerprint(file):
    first = fingerprint(file, "../../x waits 3 steps")
    assert first == fingerprint(file, "]]> waits 12 steps")
    assert first != fingerprint(file, "]]> runs 12 steps")


def test_crashes_with_one_message_in_different_code_have_different_fingerprints(file):
    item, other = (fingerprint(file, "KeyError", shape=f"KeyError in {name}") for name in "fg")
    assert item != other


@pytest.mark.parametrize(
    ("scenario", "uri"),
    [
        ("out/SPY-R07-1.json", "out/SPY-R07-1.json"),
        ("{here}/out/a b.json", "out/a%20b.json"),
        ("../x/100%.json", "../x/100%25.json"),
        ("c:d/<e>\n.json", "c%3Ad/%3Ce%3E%0A.json"),
        ("out/é.json", "out/%C3%A9.json"),
        ("/else where/s.json", "file:///else%20where/s.json"),
    ],
)
def test_a_file_is_a_uri_from_here(scenario, uri, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    finding = msgspec.structs.replace(
        reported.verdict().findings[0], scenario=scenario.format(here=file.parent)
    )
    [result] = results(written(file, findings=(finding,)))
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": uri}
