"""The bare target and the monitor are asked exactly what the gate asked."""

import subprocess
import sys

import pytest

from schedproof.gate.targets.pipe import PipeTarget
from schedproof.gate.targets.supported_releases import ReleaseError
from schedproof.model.target import ModelTarget
from schedproof.tools.benchmarks import overhead
from schedproof.tools.benchmarks.figure import NotMeasured
from schedproof.tools.benchmarks.overhead import (
    OTHER,
    RELEASE,
    MeasuredRound,
    MeasuredTarget,
    Recording,
    Spent,
    measure,
    quickest,
    reported,
    rows,
)


@pytest.mark.slow
def test_all_ask_the_same(monkeypatch):
    calls: list[list[str]] = [[]]

    class Counting(ModelTarget):
        def start(self, system, revision, config):
            calls[-1].append("start")
            return super().start(system, revision, config)

        def add(self, request):
            calls[-1].append(f"add {request['id']} {request['prompt']}")
            return super().add(request)

        def abort(self, id, inside=False):  # noqa: A002
            calls[-1].append(f"abort {id} {inside}")
            return super().abort(id, inside)

        def step(self):
            calls[-1].append("step")
            return super().step()

    def spent(work):
        calls.append([])
        work()
        return Spent(1.0, 1.0)

    monkeypatch.setattr(overhead, "clocks", lambda target: spent)
    ran = overhead.round_of(Counting(), "spyre", "sound", MeasuredTarget("model", "small", 6, 1), 0)
    gate, *others = calls
    assert len(others) == 3 * overhead.TURNS
    assert all(other == gate for other in others)
    assert ran.steps == gate.count("step") > 50
    assert any(line.startswith("add") for line in gate)


def test_a_recording_passes_everything_on():
    recording = Recording(ModelTarget())
    assert recording.step()["ok"] is False
    assert recording.operations == [("step", ())]
    assert recording.stop() == {"ok": True}


@pytest.mark.slow
def test_a_round_of_the_model_has_a_time_for_each():
    [ran] = measure(MeasuredTarget("model", "small", 3, 1))
    assert min(*ran.gate, *ran.judged, *ran.bare) > 0


def test_of_a_process_that_was_replaced_no_time_is_told(monkeypatch):
    numbers = iter([41, 41, 42])
    monkeypatch.setattr(PipeTarget, "process_id", property(lambda _: next(numbers)))
    monkeypatch.setattr(overhead, "cpu_of", lambda process: 0.0)
    with pytest.raises(NotMeasured, match="another process has taken its place"):
        overhead.clocks(PipeTarget(["none"]))(lambda: None)


def testcpu_of_another_process_is_told():
    process = subprocess.Popen([sys.executable, "-c", "sum(range(10**6)); input()"], stdin=-1)
    try:
        assert 0 <= overhead.cpu_of(process.pid) < 60
    finally:
        process.communicate(b"\n")
    with pytest.raises(NotMeasured, match="does not show"):
        overhead.cpu_of(2**22 + 1)


def ran(steps, *spent):
    return MeasuredRound(steps, *(Spent(amount, 2 * amount * amount) for amount in spent))


def test_ratios_are_those_within_a_round():
    found = list(reported("it", [ran(10, 4.0, 2.0, 1.0), ran(10, 40.0, 20.0, 10.0)]))
    assert [row.what for row in found] == ["it, bare", "it, judged", "it, gate"]
    assert [row.ratio for row in found] == [1.0, 2.0, 4.0]
    assert [row.note for row in found] == ["20 steps", "by the clock 4.00", "by the clock 16.00"]


def test_of_several_turns_the_quickest_counts():
    assert quickest([Spent(3.0, 4.0), Spent(2.0, 5.0), Spent(9.0, 9.0)]) == (2.0, 4.0)


def test_what_is_not_there_is_said(monkeypatch):
    def absent(subject):
        raise ReleaseError(f"not installed: {subject.spec}")

    monkeypatch.setattr(overhead, "measure", absent)
    monkeypatch.delenv("SCHEDPROOF_NANO_VLLM", raising=False)
    found = list(rows(quick=True))
    assert all(row.value is None for row in found)
    assert found[1].note == f"not measured: not installed: {RELEASE}"
    assert found[2].note == f"not measured: not installed: {OTHER}"
    assert found[3].note == "not measured: $SCHEDPROOF_NANO_VLLM names no checkout"
