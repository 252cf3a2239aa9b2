"""NDJSON: an event a line, as it happens, so that a gate that is killed leaves what it had said."""

from pathlib import Path
from typing import BinaryIO

import msgspec

from ..console.output import json_line
from ..files.scenario_file import FileError
from ..judging.events import Event, Found
from ..judging.verdict import Finding


class FoundLine(msgspec.Struct, frozen=True, tag="found", tag_field="event"):
    """A finding, whose scenario file is there, and the command that replays it."""

    finding: Finding
    replay: str


class Ndjson:
    """Writes a line an event; the file begins anew with the first one, and ends with the verdict.

    Raises:
        FileError: the file cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __call__(self, event: Event) -> None:
        """Write one event, at once."""
        line = FoundLine(event.finding, event.replay) if isinstance(event, Found) else event
        try:
            if self._file is None:
                self._file = self._path.open("wb", buffering=0)
            self._file.write(json_line(line) + b"\n")
        except OSError as error:
            raise FileError(f"{self._path}: cannot be written to ({error.strerror})") from None

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
