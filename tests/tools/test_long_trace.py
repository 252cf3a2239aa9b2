"""The trace of any length holds, whatever system it is of."""

import io

import pytest

from schedproof.gate.traces.judge import TraceJudge, TraceRun
from schedproof.gate.traces.source import Source
from schedproof.gate.traces.trace_file import read_trace
from schedproof.tools.long_trace import CONFIGS, make

REVISIONS = {"spyre": "sound"}


@pytest.mark.parametrize("system", sorted(CONFIGS))
def test_the_trace_holds_and_requests_come_and_go(system):
    file = io.BytesIO()
    make(system, REVISIONS.get(system, "documented"), 240, file)
    runs: list[TraceRun] = []
    lines = io.BufferedReader(io.BytesIO(file.getvalue()))  # type: ignore[arg-type]
    judge = TraceJudge("t", [], True, lambda run: None, runs.append, lambda words: None)
    judge.follow(read_trace(Source("t", lines, lambda: 0, None)))
    [only] = runs
    assert (only.steps, only.broken) == (240, [])
    assert only.monitor.history.arrived == 10
    assert len(only.monitor.history.live) < 5
    assert only.explainer is not None
    assert only.explainer.matches[0].departed is None
