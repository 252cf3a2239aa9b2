import pytest

from schedproof.examples.studies.__main__ import app

from ..command_line import Run, runner


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line of the studies in this process."""
    return runner(monkeypatch, capfd, app, "studies")
