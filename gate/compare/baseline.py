"""Baselines: the recorded behaviour of one version of a scheduler, to compare later versions with.

A baseline is a file of gzipped JSON Lines, `schedproof/baseline@1`: a header, a record for each
scenario with every answer of the target, and a last line with the number of records. It is written
whole or not at all, record by record.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import msgspec

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.systems import resolve_revision
from ...properties.checking.recording import Answer
from ..files.reading import check_regular, decode_json
from ..files.scenario_file import FileError, scenario_json, scenario_of
from ..files.writing import naming_file, whole
from ..judging.verdict import TargetInfo

FORMAT: Literal["schedproof/baseline@1"] = "schedproof/baseline@1"
LONGEST_LINE = 256 * 1024 * 1024  # bytes
Line = TypeVar("Line", bound=msgspec.Struct)


class _Format(msgspec.Struct, frozen=True):
    format: str


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The recorded target, and the budget and seed that its scenarios came from."""

    format: Literal["schedproof/baseline@1"] = FORMAT
    target: TargetInfo
    system: str
    revision: str
    profile: str
    seed: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario in the published format, the engine and scale that it came from, and the target's
    answers in order."""

    engine: str
    scale: str
    scenario: dict[str, Any]
    answers: list[Answer]


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line: the number of records."""

    records: int


class Writer:
    """Writes a baseline, one record at a time."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self.records = 0

    def record(self, engine: str, scale: str, scenario: Scenario, answers: list[Answer]) -> None:
        plain = json.loads(scenario_json(scenario))
        self.line(Record(engine, scale, plain, answers))
        self.records += 1

    def line(self, value: Any) -> None:
        with naming_file(self._path):
            self._file.write(msgspec.json.encode(value) + b"\n")


@contextmanager
def writer(path: Path, header: Header) -> Iterator[Writer]:
    """Open a baseline for writing; its file appears only if the block ends without an error. Raise
    FileError if the file cannot be written to."""
    with whole(path) as place:
        with naming_file(path):
            raw = place.open("wb")
        file: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0)
        try:
            book = Writer(path, file)
            book.line(header)
            yield book
            book.line(End(book.records))
        finally:
            with naming_file(path), raw, file:
                pass  # closes both files, and writes what is buffered


def read_baseline(path: Path) -> tuple[Header, Iterator[tuple[int, Record, Scenario]]]:
    """Return the header, and an iterator over (line number, record, scenario) that reads on demand.
    Both raise FileError if the file is damaged, truncated or of another format."""
    lines = _lines(path)
    number, line = next(lines, (1, b""))
    if not line:
        raise FileError(f"{path}: empty; valid: a file that schedproof diff --save has written")
    given = _read(path, number, line, _Format).format
    if given != FORMAT:
        raise FileError(f"{path}: line 1: $.format: {given!a:.60}; supported: {FORMAT!r}")
    header = _read(path, number, line, Header)
    try:
        resolve_revision(header.system, header.revision)
    except InputError as error:
        raise FileError(f"{path}: line 1: {error}") from None
    return header, _records(path, lines, header)


def _records(
    path: Path, lines: Iterator[tuple[int, bytes]], header: Header
) -> Iterator[tuple[int, Record, Scenario]]:
    records = 0
    for number, line in lines:
        if line.startswith(b'{"records"'):
            end = _read(path, number, line, End)
            if end.records != records:
                problem = f"$.records: {end.records}, but {records} precede it"
                raise FileError(f"{path}: line {number}: {problem}")
            if next(lines, None) is not None:
                raise FileError(f"{path}: line {number + 1}: nothing may follow the end")
            return
        record = _read(path, number, line, Record)
        # The error names the place inside the scenario; add the place of the scenario in the file.
        scenario = scenario_of(record.scenario, f"{path}: line {number}: $.scenario")
        if (scenario.system, scenario.revision) != (header.system, header.revision):
            problem = f"$.scenario is of {scenario.system} {scenario.revision}"
            valid = f"valid: {header.system} {header.revision}, as the first line says"
            raise FileError(f"{path}: line {number}: {problem}; {valid}")
        records += 1
        yield number, record, scenario
    raise FileError(f"{path}: cut off after {records} records: its last line is missing")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    check_regular(path)
    try:
        with gzip.open(path, "rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if not line.endswith(b"\n"):
                    problem = (
                        "longer than any record is" if len(line) == LONGEST_LINE else "cut off"
                    )
                    raise FileError(f"{path}: line {number}: {problem}")
                yield number, line
    except gzip.BadGzipFile as error:
        raise FileError(f"{path}: not a gzip file, or damaged ({error})") from None
    except (EOFError, zlib.error) as error:
        raise FileError(f"{path}: damaged or cut off ({error})") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except FileError:
        raise
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{str(path)!a}: {error}") from None


def _read(path: Path, number: int, line: bytes, kind: type[Line]) -> Line:
    return decode_json(line, f"{path}: line {number}", kind)
