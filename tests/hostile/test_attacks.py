"""The other harnesses in small: commands, targets, kills and the server."""

import sys

import pytest

from . import commands, kills, server, targets
from .bad_target import MISDEEDS


@pytest.mark.slow
def test_commands_that_read_what_is_spoiled_end_in_a_verdict_or_a_line() -> None:
    told = commands.attacked(inputs=3 * len(commands.COMMANDS), seed=7, jobs=1)
    assert [line for one in told for line in one.wrong] == []
    assert {one.code for one in told} > {0, 2}


HARD = (
    *("hangs and ignores signals", "floods stdout", "escape sequences on stderr"),
    *("a daemon, and ends", "forks, and goes on", "eats memory"),
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("misdeed", HARD)
def test_a_gate_of_a_bad_target_ends_and_leaves_nothing(misdeed: str) -> None:
    assert targets.attack([*MISDEEDS].index(misdeed)).wrong == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("work", ["gate of a target that hangs", "selfcheck", "campaign"])
def test_a_command_that_is_killed_leaves_nothing_and_goes_on(work: str) -> None:
    told = kills.attack((work, 2, 7))
    assert told.wrong == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_server_answers_whatever_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["server", "--requests", "300", "--seed", "7"])
    assert server.main() == 0
    assert "0 went wrong" in capsys.readouterr().out
