"""The table of documents has each rule of the five, with what the catalogue says of it."""

import msgspec
import pytest

from schedproof.gate.judging.verdict import RuleVerdict, Status, TargetInfo, Verdict
from schedproof.spec.catalogue import load
from schedproof.tools.documents import (
    DOCUMENTS,
    PAGE,
    TOOL,
    checked_by,
    read,
    rules_of,
    table,
    totals,
)
from schedproof.tools.pages import table_in

MISSING = {
    "spyre": set(),
    "vllm": set(),
    "nano_vllm": {"NAN-R33"},
    "llmservingsim": set(),
}


def cells(name):
    lines = table_in(PAGE, f"{TOOL}: {name}").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_rule_of_a_document_is_listed_once_with_what_checks_it(name):
    listed = [(row[1], row[2].partition("]")[0].strip("["), row[3]) for row in cells(name)]
    rules = rules_of(DOCUMENTS[name])
    assert listed == [(rule.title, rule.id, checked_by(rule)) for rule in rules]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_row_is_judged_on_real_code_only_where_the_rule_has_a_predicate(name):
    for rule, row in zip(rules_of(DOCUMENTS[name]), cells(name), strict=True):
        said = {part.partition(":")[0] for part in row[4].split("; ")}
        assert said <= ({"held", "broken", "not judged"} if rule.checked else {"–"}), rule.id


def test_the_totals_count_every_row_once():
    for (source, sentences, checked, on_code, *reasons), name in zip(
        cells("totals"), DOCUMENTS, strict=True
    ):
        assert source == DOCUMENTS[name].source
        assert int(sentences) == len(cells(name)) == int(checked) + sum(map(int, reasons))
        judged = [row for row in cells(name) if row[4].startswith(("held", "broken"))]
        assert int(on_code) == len(judged)


@pytest.mark.parametrize("system", MISSING)
def test_these_rules_have_nothing_in_a_scenario_or_the_protocol_yet_and_no_other(system):
    """A list to be made shorter; a rule that joins it is a step back."""
    assert {rule.id for rule in load(system) if rule.reason == "missing"} == MISSING[system]


def test_the_answers_of_several_releases_stand_together(tmp_path):
    statuses: dict[str, Status] = {"1": "violated", "2": "held", "3": "violated"}
    for version, status in statuses.items():
        rules = (RuleVerdict("SPY-R02", "held"), RuleVerdict("SPY-R07", status))
        target = TargetInfo("n", "n", version)
        verdict = Verdict(target, "spyre", "sound", "ci", 0, (), rules, (), 1)
        (tmp_path / f"{version}.json").write_bytes(msgspec.json.encode(verdict))
    verdicts = read(tmp_path)["spyre"]
    rows = [*table(DOCUMENTS["spyre"], verdicts)][2:]
    cells = {row.split(" | ")[2][1:8]: row for row in rows}
    assert cells["SPY-R07"].endswith("| broken: 1, 3; held: 2 |")
    assert cells["SPY-R02"].endswith("| held: 1, 2, 3 |")
    assert cells["SPY-R09"].endswith("| not judged |")
    assert [*totals(verdicts)][2].split(" | ")[1:4] == ["57", "33", "2"]
