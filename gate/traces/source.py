"""Where the lines of a trace come from: a file, packed or not, or stdin."""

import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from ..files.scenario_file import FileError

GZIP = b"\x1f\x8b"


class Source(NamedTuple):
    """An open trace: its name for messages, its lines, how many bytes of how many are read."""

    name: str
    lines: BinaryIO
    position: Callable[[], int]
    size: int | None


@contextmanager
def opened_trace(file: str) -> Iterator[Source]:
    """The trace in a file, or on stdin where it is called `-`.

    Raises:
        FileError: it cannot be read.
    """
    name = "stdin" if file == "-" else file
    try:
        raw = io.BufferedReader(_raw(file), 1 << 16)
        packed = raw.peek(2)[:2] == GZIP
        size = os.fstat(raw.fileno()).st_size or None
    except OSError as error:
        raise FileError(f"{name}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{name!a}: {error}") from None
    with raw:
        lines = io.BufferedReader(_Unpacked(raw), 1 << 16) if packed else raw
        yield Source(name, lines, raw.tell if raw.seekable() else lambda: 0, size)


class _Unpacked(io.RawIOBase):
    """What is in a compressed file, as far as it goes: GzipFile itself drops up to 64 KiB in front
    of the place where one was cut off."""

    def __init__(self, raw: BinaryIO) -> None:
        self._file = gzip.GzipFile(fileobj=raw)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _raw(file: str) -> io.FileIO:
    return io.FileIO(os.dup(0) if file == "-" else file)
