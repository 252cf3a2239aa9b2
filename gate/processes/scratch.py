"""Temporary folders that are removed even if their process is killed.

A killed process cannot remove its folders. They are removed by the next process that needs a
temporary folder. Each folder contains a file that its process keeps locked; when the process ends,
the system unlocks the file. Only folders with such a file are removed, whatever their name.

Standard library only: this file also runs inside the environment of a release under test.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "schedproof-"
LOCKED = ".schedproof-scratch"
YOUNG = 60.0  # seconds; the process of a younger folder may not have locked it yet


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a temporary folder, and remove it when the block ends. First remove the folders of
    processes that no longer run."""
    _remove_stale(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name,
        (Path(name) / LOCKED).open("xb") as locked,
    ):
        with suppress(OSError):  # a file system without locks
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Path(name)


def _remove_stale(folder: Path) -> None:
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_stale(Path(entry.path))


def _remove_if_stale(folder: Path) -> None:
    if folder.stat().st_uid != os.getuid() or time.time() - folder.stat().st_mtime < YOUNG:
        return
    descriptor = os.open(folder / LOCKED, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the process runs
        shutil.rmtree(folder, ignore_errors=True)
