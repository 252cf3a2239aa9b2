import pytest

from schedproof.tools.benchmarks.__main__ import app

from ...command_line import Run, runner


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line of the benchmarks in this process."""
    return runner(monkeypatch, capfd, app, "benchmarks")
