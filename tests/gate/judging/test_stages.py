"""Stages in processes: the same verdict for every number of them, and one fault for all."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from schedproof.gate.judging.context import GateOptions
from schedproof.gate.judging.deviations import Deviations
from schedproof.gate.judging.events import Event, Found, Progress
from schedproof.gate.judging.judge import run_gate
from schedproof.gate.targets.target_spec import MODEL, parse_target
from schedproof.spec.catalogue import load, select

FAULTY = """
from schedproof.model.target import ModelTarget

class Crashes(ModelTarget):
    def step(self):
        return {"ok": True, "step": {"kind": "prefill"}}

def make():
    return Crashes()
"""
OPTIONS = GateOptions(
    spec=MODEL,
    system="spyre",
    revision="documented",
    rules=select(load("spyre"), ["SPY-R07", "SPY-R09"]),
    chosen=True,
    profile_name="quick",
    max_failures=1,
)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def judged(options):
    events: list[Event] = []
    verdict, _ = run_gate(options, Deviations(), events.append)
    return without_times(msgspec.to_builtins(verdict)), events


def without_times(value):
    if isinstance(value, dict):
        times = ("seconds", "found_after", "shrunk_in")
        return {key: without_times(one) for key, one in value.items() if key not in times}
    return [without_times(one) for one in value] if isinstance(value, list | tuple) else value


@pytest.mark.slow
def test_the_verdict_is_the_same_for_one_process_and_for_several():
    alone, _ = judged(OPTIONS)
    several, events = judged(replace(OPTIONS, jobs=3))
    assert several == alone
    assert alone["exit_code"] == 1
    found = [event for event in events if isinstance(event, Found)]
    assert {event.finding.rule for event in found} == {"SPY-R07"}
    assert all(Path(event.finding.scenario).is_file() for event in found)
    assert any(isinstance(event, Progress) for event in events)


@pytest.mark.slow
def test_what_comes_after_the_first_finding_does_not_count_where_that_is_enough():
    everything, _ = judged(OPTIONS)
    alone, _ = judged(replace(OPTIONS, first_only=True))
    several, _ = judged(replace(OPTIONS, first_only=True, jobs=3))
    assert several == alone
    assert alone["findings"] == everything["findings"][: len(alone["findings"])]
    assert len(alone["engines"]) < len(everything["engines"])


@pytest.mark.slow
def test_a_target_that_breaks_the_protocol_gives_one_fault(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    options = replace(OPTIONS, spec=parse_target("faulty:make"), revision="sound")
    alone, _ = judged(options)
    several, _ = judged(replace(options, jobs=2))
    assert several == alone
    assert alone["exit_code"] == 3
    assert alone["fault"]
