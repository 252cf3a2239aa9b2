"""SIGKILL at nearly two hundred random instants: no finding is lost, no file is half there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schedproof.gate.corpus.folder import entries
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.judging.judge import judge
from schedproof.gate.targets import probe as probing
from schedproof.properties.checking.replay import replay

from . import crash_loop


def survivors(work, folder, kills):
    ran = subprocess.run(
        [sys.executable, crash_loop.__file__, work, str(folder), str(kills)],
        stdout=subprocess.PIPE,
        check=True,
    )
    reported: dict[str, int] = json.loads(ran.stdout)
    return reported


def found(file):
    """The findings that a gate had reported; the last line may be cut."""
    lines = file.read_bytes().split(b"\n")
    whole = [json.loads(line) for line in lines[:-1]]
    return [event["finding"] for event in whole if event["event"] == "found"]


@pytest.mark.slow
def test_no_finding_that_was_reported_is_lost_and_the_next_gate_begins_with_it(
    tmp_path, gate, monkeypatch
):
    assert survivors("gate", tmp_path, 40)["killed"] >= 8
    reported = [finding for file in tmp_path.glob("events-*.ndjson") for finding in found(file)]
    assert reported
    for finding in reported:
        scenario = read_scenario(Path(finding["scenario"]))
        behind = {*finding.get("behind", ())}  # what the run breaks before would end the replay
        rules = [rule for rule in crash_loop.RULES if rule.id not in behind]
        broken = replay(crash_loop.Faulty(), scenario, rules).broken
        assert finding["rule"] in {rule.rule for rule in broken}
    kept = entries(tmp_path / "out")
    assert {finding["scenario"] for finding in reported} <= {str(finding.path) for finding in kept}
    monkeypatch.setattr(probing, "SCALES", ("small",))
    corpus = [entry.scenario for entry in kept]
    limits = {"examples": 1, "max_failures": len(kept)}
    verdict = judge(gate(crash_loop.Faulty(), crash_loop.IDS, corpus=corpus, **limits))
    again = {finding.rule for finding in verdict.findings if finding.engine == "own corpus"}
    assert {finding["rule"] for finding in reported} <= again


@pytest.mark.slow
def test_no_file_of_a_corpus_is_ever_half_written(tmp_path):
    assert survivors("corpus", tmp_path, 140) == {"killed": 140, "ended": 0}
    kept = entries(tmp_path / "out")
    assert 1 <= len(kept) <= 20
    assert all(entry.rule == "ALL-R03" for entry in kept)
