"""Commands with one process and with two: a ratio only of commands that end as they should."""

from collections.abc import Sequence

import pytest

from schedproof.tools.benchmarks import processes
from schedproof.tools.benchmarks.figure import NotMeasured


def test_both_take_turns_and_are_compared(monkeypatch):
    asked: list[str] = []

    def run(words: Sequence[str], ends: int) -> float:
        asked.append(words[-1])
        return 3.0 if words[-1] == "1" else 2.0

    monkeypatch.setattr(processes, "run", run)
    one, two, *_ = processes.rows(quick=False)
    assert asked[: 2 * processes.ROUNDS] == ["1", "2"] * processes.ROUNDS
    assert (one.ratio, two.ratio) == (1.0, 2 / 3)
    assert "1.50 times as fast" in two.note


def test_a_search_that_breaks_nothing_is_no_proof_and_all_others_are():
    assert [processes.ENDS.get(name, 0) for name in processes.COMMANDS] == [0, 3, 0, 0, 0]
    assert processes.run(["rules", "SPY-R07"], 0) > 0


def test_a_command_that_ends_otherwise_is_said():
    with pytest.raises(NotMeasured, match=r"gate --nonsense: exit code 2, .*--nonsense"):
        processes.run(["gate", "--nonsense"], 0)
