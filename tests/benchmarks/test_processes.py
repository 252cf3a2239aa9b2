"""Commands with one process and with two: a ratio only of two verdicts that are the same."""

from collections.abc import Sequence

import pytest

from schedproof.benchmarks import processes
from schedproof.benchmarks.figure import NotMeasured


def test_both_take_turns_and_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(words: Sequence[str]) -> tuple[int, float]:
        asked.append(words[-1])
        return 0, 3.0 if words[-1] == "1" else 2.0

    monkeypatch.setattr(processes, "run", run)
    one, two, *_ = processes.rows(quick=False)
    assert asked[: 2 * processes.ROUNDS] == ["1", "2"] * processes.ROUNDS
    assert (one.ratio, two.ratio) == (1.0, 2 / 3)
    assert "1.50 times as fast" in two.note


def test_another_verdict_with_two_processes_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "run", lambda words: (int(words[-1] == "2"), 1.0))
    with pytest.raises(NotMeasured, match=r"exit codes \[0, 1\]"):
        next(processes.rows(quick=True))


def test_a_command_without_a_verdict_is_said() -> None:
    with pytest.raises(NotMeasured, match=r"gate --nonsense: exit code 2, .*--nonsense"):
        processes.run(["gate", "--nonsense"])
