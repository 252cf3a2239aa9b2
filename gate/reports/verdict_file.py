"""The verdict as a file: `schedproof/verdict@1`."""

from pathlib import Path

from ..events import Event, Judged
from ..options import write
from ..report import as_json


class VerdictFile:
    """Writes the verdict, once there is one.

    Raises:
        FileError: the file cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Event) -> None:
        """Wait for the verdict."""
        if isinstance(event, Judged):
            write(self._path, as_json(event.verdict))
