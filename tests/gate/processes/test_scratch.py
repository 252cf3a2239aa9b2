"""Temporary folders: a killed process leaves one behind, and the next process removes it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from schedproof.gate.processes.scratch import LOCKED, YOUNG, scratch_folder

HOLDS = """
import sys, time
from schedproof.gate.processes.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "probes").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def make_old(*folders):
    for folder in folders:
        os.utime(folder, (time.time() - 2 * YOUNG,) * 2)


def test_a_folder_ends_with_its_block(folder):
    with scratch_folder() as made:
        assert made.parent == folder
        assert [file.name for file in made.iterdir()] == [LOCKED]
    assert not list(folder.iterdir())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_live_one_is_not(
    folder,
):
    words = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        make_old(left)
        with scratch_folder():
            assert (left / "probes").exists()
        process.send_signal(signal.SIGKILL)
    with scratch_folder():
        assert not left.exists()


def test_a_folder_of_a_killed_process_stays_while_it_is_young(folder):
    left = folder / "schedproof-young"
    left.mkdir()
    (left / LOCKED).touch()
    with scratch_folder():
        assert left.exists()
    make_old(left)
    with scratch_folder():
        assert not left.exists()


def test_what_the_user_has_in_the_folder_stays(folder):
    own, link, other = (folder / name for name in ("schedproof-out", "schedproof-link", "mine"))
    own.mkdir()
    (own / "finding.json").touch()
    other.mkdir()
    (other / LOCKED).touch()
    link.symlink_to(other)
    (folder / "schedproof-file").touch()
    make_old(own, other)
    with scratch_folder():
        pass
    assert sorted(path.name for path in folder.iterdir()) == [
        *("mine", "schedproof-file", "schedproof-link", "schedproof-out")
    ]


def test_a_missing_temporary_folder_is_the_error_of_python(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "gone"))
    with pytest.raises(FileNotFoundError), scratch_folder():
        pass
