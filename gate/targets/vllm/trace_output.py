"""The file into which a recorder writes. Standard library only, like the recorder itself."""

import os
from contextlib import suppress
from itertools import chain, count
from typing import Protocol


class RecordEnds(Exception):  # noqa: N818 (not an error of the server's)
    """Raised if a trace cannot express an event; `str()` is the reason."""


class Lines(Protocol):
    """A file that takes whole lines."""

    def write(self, lines: str, /) -> object:
        """Append the lines, or leave the file as it is and raise an exception."""


class TraceFile:
    """A new file for the records of this process. If the file exists, perhaps because another
    process writes to it, the new file gets a similar name."""

    def __init__(self, path: str) -> None:
        own = f"{path}.{os.getpid()}"
        names = chain([path, own], (f"{own}.{number}" for number in count(2)))
        while True:
            with suppress(FileExistsError):
                self.name = next(names)
                self._file = os.open(self.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                break
        self._length = 0  # of the whole lines, in bytes
        self.latest: Lines | None = None

    def begin(self) -> Lines:
        """Return a writer for the record of another run. The writers of earlier runs then refuse to
        write, since the lines of two schedulers must not mix."""
        self.latest = _RunLines(self)
        return self.latest

    def append(self, lines: str) -> None:
        """Write whole lines. If the disk is full, remove what was written of them."""
        data = lines.encode()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BaseException:
            os.ftruncate(self._file, self._length)
            os.lseek(self._file, self._length, os.SEEK_SET)
            raise
        self._length += len(data)


class _RunLines:
    def __init__(self, file: TraceFile) -> None:
        self._file, self._process = file, os.getpid()

    def write(self, lines: str, /) -> None:
        if self._file.latest is not self:
            raise RecordEnds(f"a later scheduler of this process records in {self._file.name}")
        if os.getpid() != self._process:
            raise RecordEnds(f"{self._file.name} belongs to the process that started this one")
        self._file.append(lines)
