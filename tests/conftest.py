import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from schedproof.model.spyre import model as models
from schedproof.model.spyre.revision import Revision
from schedproof.model.target import ModelTarget

from . import golden_tables

# HYPOTHESIS_PROFILE selects one; `ci` tries the same examples on every run.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("dev", max_examples=50)
settings.register_profile("campaign", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell's background jobs start with SIGINT ignored, and those of nohup with SIGHUP ignored.
# Processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def start_revision(monkeypatch):
    """Starts the model with a revision of the test's own, in the place of a published one."""

    def start(revision: Revision, **config: Any) -> ModelTarget:
        monkeypatch.setitem(models.REVISIONS, revision.name, revision)
        return golden_tables.started(revision.name, **config)

    return start


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
