"""Since when a rule breaks, until when, and in what it is seen best."""

import pytest

from schedproof.gate.judging.verdict import Finding, RuleVerdict, TargetInfo, Verdict
from schedproof.gate.matrix.cells import Cell, Judged
from schedproof.gate.matrix.table import Releases, matrix_of, page_of, spans
from schedproof.gate.targets.scales import Configuration

GATE = ("quick", 0)
LOADS = Configuration("connector, asynchronous", {"kv_connector": True})


def judged(version, *requests, status="violated"):
    """A release of which V1-R22 broke, found with so many requests; held without."""
    target, file = f"vllm=={version}", f"out/V1-R22-{version}.json"
    place = ("V1-R22", "hypothesis", "small", file, 3, "waits")
    rule = RuleVerdict("V1-R22", status, 3, file, "waits", divergence="known of it")
    verdict = Verdict(
        *(TargetInfo(target, "vllm", version), "vllm", "documented", "quick", 0, ()),
        rules=(rule if requests else RuleVerdict("V1-R22", "held"), RuleVerdict("V1-I2", "held")),
        findings=tuple(Finding(*place, number, (), 0.0, 0.0) for number in requests),
        exit_code=1 if requests else 0,
    )
    return Judged(Cell(target, LOADS, *GATE), verdict)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("bbh", ["0 to 1"]),
        ("hbh", ["1"]),
        ("bhb", ["0", "2"]),
        ("b-b", ["0 to 2"]),
        ("bib", ["0", "2"]),
        ("hhh", []),
    ],
)
def test_versions_in_a_row_are_one_span_and_what_was_not_exercised_parts_nothing(states, expected):
    words = {"b": "violated", "h": "held", "-": "not_exercised", "i": "inconclusive"}
    by_version = {str(number): words[state] for number, state in enumerate(states)}
    assert [str(span) for span in spans(by_version)] == expected


def test_a_row_has_the_smallest_scenario_and_where_it_broke():
    found = [judged("0.19.1", 4), judged("0.24.0", 2), judged("0.28.0", 3), judged("0.33.0")]
    [row] = matrix_of(found, *GATE).rows
    assert (row.rule, row.configuration, row.version) == ("V1-R22", LOADS.name, "0.24.0")
    assert row.broken == (Releases("0.19.1", "0.28.0"),)
    assert row.scenario == "scenarios/vllm-0.24.0-connector-asynchronous/V1-R22-0.24.0.json"
    assert row.states["0.33.0"] == "held"
    assert row.known == "known of it"


def test_each_release_is_counted_and_one_without_a_verdict_says_why():
    without = Judged(Cell("vllm==0.21.0", LOADS, *GATE), None, "the index | has none")
    matrix = matrix_of([judged("0.19.1", 4), without, judged("0.33.0")], *GATE)
    counts = [(one.version, one.held, one.broken, one.problem) for one in matrix.entries]
    assert counts == [
        ("0.19.1", 1, 1, ""),
        ("0.21.0", 0, 0, "the index | has none"),
        ("0.33.0", 2, 0, ""),
    ]
    page = page_of(matrix, "schedproof matrix vllm")
    assert "found by 2 gates of profile quick, seed 0: `schedproof matrix vllm`" in page
    assert "| connector, asynchronous | V1-R22 | 0.19.1 | " in page
    assert "| 0.19.1 | 1 held, **1 broken** |" in page
    assert "| 0.21.0 | not judged |" in page
    assert "Not judged, 0.21.0: the index \\| has none." in page


def test_a_page_without_broken_rules_says_so():
    assert "No rule was broken." in page_of(matrix_of([judged("0.33.0")], *GATE), "command")
