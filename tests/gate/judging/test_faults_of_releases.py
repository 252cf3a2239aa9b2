"""Findings of gates of vLLM's releases (profile ci, seed 0), each with its cause: an entry of the
track record. `known` numbers the divergences of the catalogue."""

import csv
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from schedproof.gate.judging.faults import faults_of
from schedproof.gate.judging.verdict import Finding
from schedproof.model.systems import full_config
from schedproof.spec.catalogue import load

with (
    Path(__file__).with_name("findings_of_releases.csv").open(encoding="utf-8", newline="") as file
):
    ROWS = [*csv.DictReader(file)]
# Causes that remain several faults: a finding was not shrunk, is known although another one that
# follows from it is not, or ends a request early.
IN_PARTS = {"0.28.0": {"V7": 2, "V31": 2, "V40": 2}, "0.19.1": {"V3": 2}}


def words(cell: str) -> tuple[str, ...]:
    return tuple(cell.split("; ")) if cell else ()


def finding(row: dict[str, str]) -> Finding:
    return Finding(
        rule=row["rule"],
        engine="hypothesis",
        scale=row["scale"],
        scenario=f"{row['rule']}-{row['run']}.json",
        step=1,
        message=row["error"],
        requests=1,
        consequences=words(row["follows"]),
        found_after=0.0,
        shrunk_in=0.0,
        divergence=row["known"] or None,
        behind=words(row["behind"]),
        needs=None if row["needs"] == "unshrunk" else words(row["needs"]),
        differs=row["differs"] or None,
    )


@pytest.mark.parametrize("release", ["0.33.0", "0.28.0", "0.19.1"])
def test_a_fault_has_one_cause_and_a_cause_is_one_fault(release):
    causes = {f"{row['rule']}-{row['run']}.json": row["cause"] for row in ROWS}
    rows = [row for row in ROWS if row["release"] == release]
    rules = {rule.id: rule for rule in load("vllm")}
    usual = full_config("vllm", "documented", {})
    faults = faults_of([finding(row) for row in rows], rules, date(2026, 1, 31), usual=usual)
    grouped = [{causes[scenario] for scenario in fault.scenarios} for fault in faults]
    assert [group for group in grouped if len(group) > 1] == []
    parts = Counter(cause for group in grouped for cause in group)
    assert {cause: number for cause, number in parts.items() if number > 1} == IN_PARTS.get(
        release, {}
    )
    assert {*parts} == {row["cause"] for row in rows}
