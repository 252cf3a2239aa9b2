"""The command line in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
import typer

from schedproof.gate.cli import app


class Result(NamedTuple):
    """What a command line ended with, and what it wrote."""

    code: int
    out: str
    err: str

    def refused(self, message: str) -> None:
        """Assert that wrong input is one line, which begins like this, and exit code 2."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith(f"schedproof: {message}"), self.err
        assert self.err.count("\n") == 1, self.err


Run = Callable[..., Result]


def runner(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    commands: typer.Typer = app.app,
    program: str = "schedproof",
) -> Run:
    """Runs a command line with the words that it is called with."""

    def main(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", [program, *words])
        with pytest.raises(SystemExit) as ended:
            app.main(commands)
        read = capfd.readouterr()
        return Result(int(ended.value.code or 0), read.out, read.err)

    return main
