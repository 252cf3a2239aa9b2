import pytest

from schedproof.tools.benchmarks.__main__ import app

from ...command_line import runner


@pytest.fixture
def run(monkeypatch, capfd):
    """The command line of the benchmarks in this process."""
    return runner(monkeypatch, capfd, app, "benchmarks")
