import pytest

from schedproof.examples.studies.__main__ import app

from ..command_line import runner


@pytest.fixture
def run(monkeypatch, capfd):
    """The command line of the studies in this process."""
    return runner(monkeypatch, capfd, app, "studies")
