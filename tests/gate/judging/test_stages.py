"""Stages in processes: the same verdict for every number of them, and one fault for all."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from schedproof import judge as judge_target
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.judging.context import GateOptions
from schedproof.gate.judging.deviations import Deviations
from schedproof.gate.judging.judge import judge, run_gate
from schedproof.gate.judging.verdict import Event, Found, Progress
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.target_spec import MODEL, parse_target
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load, select

from ..build import Toy, entry
from .test_judge import THREE, BreaksThreeRules

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

pytestmark = pytest.mark.usefixtures("working_folder")


@pytest.fixture
def one_scale(monkeypatch):
    """The corpus and one scale: two stages, which is enough for two processes."""
    monkeypatch.setattr(probing, "SCALES", ("small",))


def judged(options):
    events: list[Event] = []
    verdict, _ = run_gate(options, Deviations(), events.append)
    return without_times(msgspec.to_builtins(verdict)), events


def without_times(value):
    if isinstance(value, dict):
        times = ("seconds", "found_after", "shrunk_in")
        return {key: without_times(member) for key, member in value.items() if key not in times}
    return [without_times(member) for member in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The verdict of one process at one scale."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("alone"))
        patched.setattr(probing, "SCALES", ("small",))
        return judged(OPTIONS)[0]


@pytest.mark.slow
@pytest.mark.usefixtures("one_scale")
def test_the_verdict_is_the_same_for_one_process_and_for_several(alone):
    several, events = judged(replace(OPTIONS, jobs=2))
    assert several == alone
    assert alone["exit_code"] == 1
    found = [event for event in events if isinstance(event, Found)]
    assert {event.finding.rule for event in found} == {"SPY-R07"}
    assert all(Path(event.finding.scenario).is_file() for event in found)
    assert any(isinstance(event, Progress) for event in events)


@pytest.mark.slow
@pytest.mark.usefixtures("one_scale")
def test_what_comes_after_the_first_finding_does_not_count_where_that_is_enough(alone):
    first, _ = judged(replace(OPTIONS, first_only=True))
    several, _ = judged(replace(OPTIONS, first_only=True, jobs=2))
    assert several == first
    assert first["findings"] == alone["findings"][: len(first["findings"])]
    assert len(first["engines"]) < len(alone["engines"])


@pytest.mark.slow
@pytest.mark.usefixtures("one_scale")
def test_a_target_that_breaks_the_protocol_gives_one_fault(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    options = replace(OPTIONS, spec=parse_target("faulty:make"), revision="sound")
    alone, _ = judged(options)
    several, _ = judged(replace(options, jobs=2))
    assert several == alone
    assert alone["exit_code"] == 3
    assert alone["fault"]


def test_a_rule_that_breaks_only_behind_another_is_found(tmp_path):
    """nano-vLLM 0.2.0: NAN-R04 breaks only once NAN-R40 has."""
    rules = ["NAN-R40", "NAN-R04"]
    verdict = judge_target("model", system="nano_vllm", revision="0.2.0", rules=rules, out=tmp_path)
    assert entry(verdict, "NAN-R40").status == "violated"
    behind = entry(verdict, "NAN-R04")
    assert behind.status == "violated"
    finding = next(kept for kept in verdict.findings if kept.rule == "NAN-R04")
    assert "NAN-R40" in finding.behind
    [fault] = verdict.faults
    assert (fault.rule, fault.follows, behind.fault) == ("NAN-R40", ("NAN-R04",), 1)


@pytest.mark.slow
def test_what_only_ran_until_a_crash_is_inconclusive(gate):
    class CrashesWhenItDecodes(Toy):
        def bend(self, step):
            if step["kind"] == "decode":
                raise ValueError("no decode")

    verdict = judge(gate(CrashesWhenItDecodes()))
    assert entry(verdict, "ALL-R01").status == "violated"
    rule = entry(verdict, "SPY-R20")
    assert rule.status == "inconclusive"
    assert rule.exercised > 0
    assert rule.message.startswith("exercised only in runs cut short by ALL-R01 (")


@pytest.mark.slow
def test_a_rule_that_was_not_shrunk_is_broken_and_can_be_replayed(gate):
    few = judge(gate(BreaksThreeRules(), THREE, max_failures=1))
    left = [kept for kept in few.findings if kept.others_first]
    assert left
    for finding in left:
        scenario = read_scenario(Path(finding.scenario))
        again = replay(BreaksThreeRules(), scenario, select(load("spyre"), [finding.rule]))
        assert again.broken[0].rule == finding.rule
        assert finding.needs is None
        assert "chunk_size" in finding.features
        assert finding.replay.startswith(f"schedproof replay {finding.scenario}")
    hidden = {kept.rule for kept in left} - {
        kept.rule for kept in few.findings if not kept.others_first
    }
    for rule in hidden:
        judged = entry(few, rule)
        words = rf"not shrunk \(\d others? came first\): use --rule {rule} to shrink it; "
        assert (judged.status, bool(re.match(words, judged.message or ""))) == ("violated", True)
