"""The verdict as a file: `schedproof/verdict@1`."""

from pathlib import Path

from ..console.output import as_json
from ..files.writing import write
from ..judging.events import Event, Judged


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
