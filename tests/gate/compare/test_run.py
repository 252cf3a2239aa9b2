"""Scales of a comparison in processes: the same result for every number of them."""

import json
from collections import deque
from typing import Any

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.processes.work_process import WorkProcess

TOYS = """
from schedproof.model.target import ModelTarget

class Order(ModelTarget):
    def step(self):
        reply = super().step()
        if len(reply["step"]["running"]) > 1:
            reply["step"]["running"].reverse()
        return reply

class Nonsense(ModelTarget):
    def step(self):
        reply = super().step()
        return reply if len(reply["step"]["running"]) < 3 else {"ok": True, "step": {}}
"""
TIMES = ("seconds", "found_after", "shrunk_in")


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


class WorksHere:
    """What a process would do, done at once in this one, where budgets can be small."""

    def __init__(self, work, task):
        self._messages: deque[Any] = deque()
        self.pipe = self
        work(self, task)

    def send(self, message):
        self._messages.append(message)

    def recv(self):
        return self._messages.popleft()

    def ask_to_end(self):
        pass

    def end(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "code", "here"),
    [
        (("model", "model"), 0, True),
        # At each scale: what the first finds the next one knows.
        (("model", "toys:Order"), 1, True),
        (("model", "toys:Nonsense"), 3, False),
    ],
)
def test_the_result_is_the_same_for_one_process_and_for_two(
    run, targets, code, here, tmp_path, monkeypatch
):
    if here:
        monkeypatch.setattr(WorkProcess, "start", WorksHere)
        monkeypatch.setitem(PROFILES, "quick", Profile(10, 10, 20, corpus_steps=200))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys.py").write_text(TOYS, encoding="utf-8")
    results = []
    for jobs in ("1", "2"):
        words = ("--system", "nano_vllm", "--profile", "quick", "--jobs", jobs, "--json", "d.json")
        result = run("diff", *targets, *words)
        assert result.code == code, result
        results.append(without_times(json.loads((tmp_path / "d.json").read_bytes())))
    assert results[0] == results[1]
    assert bool(results[0]["differences"]) is (code == 1)
    assert len({one["scale"] for one in results[0]["engines"]}) > 1 or code == 3


@pytest.mark.parametrize("more", [("--save", "b.gz"), ("--since", "b.gz"), ()])
def test_a_number_of_processes_that_means_nothing_is_refused(run, more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    targets = ("model",) if more else ("model", "model")
    result = run("diff", *targets, *more, "--jobs", "2" if more else "0")
    assert result.code == 2
    assert result.err.startswith("schedproof: --jobs: ")
