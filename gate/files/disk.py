"""Read users' files, if they are regular and not too large. Write files atomically."""

import errno
import json
import os
import re
import shutil
import stat
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import msgspec

Read = TypeVar("Read")


class FileError(ValueError):
    """Raised if a file is invalid. The message is one line with the file, the JSON path and the
    value."""


MOST_LINKS = 40  # links that lead to each other; the system follows no more than this
READER_LIMIT = 5.0  # seconds to wait until a process reads from a pipe
MAX_TOML = 1024 * 1024  # bytes in a configuration file
DEEPEST = 40  # levels of brackets; code that prints or compares values would fail on deeper nesting
TOO_DEEP = f"nested deeper than {DEEPEST} levels"
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
INNERMOST = re.compile(rb"\[\]|\{\}")
NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})


def check_regular(path: Path) -> None:
    """Raise FileError unless this is a regular file. Reading a pipe or a device might never end."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{str(path)!a}: {error}") from None
    if stat.S_ISDIR(mode):
        raise FileError(f"{path}: cannot be read (Is a directory)")
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: not a regular file; valid: a file")


def read_text(path: Path, most: int, kind: str) -> str:
    """Return the text of a file of at most `most` bytes. Messages call such a file a `kind`. Raise
    FileError if the file is not regular, is too large or is not UTF-8."""
    check_regular(path)
    with name_file_in_errors(path, "read"), path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FileError(f"{path}: larger than {most} bytes, the limit for a {kind}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: byte {error.start} is not UTF-8") from None


def read_toml(path: Path, kind: str) -> dict[str, Any]:
    """Return the content of a TOML file. Errors are as for `read_text`."""
    text = read_text(path, MAX_TOML, kind)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        wrong = "" if line is None else text.split("\n")[int(line[1]) - 1].strip()
        at = f": {wrong!r:.60}" if wrong else ""
        raise FileError(f"{path}: not TOML: {error}{at}") from None


def decode_json(data: bytes, place: str, kind: type[Read]) -> Read:
    """Decode JSON that schedproof has written. Raise a FileError that names `place` if the data is
    invalid."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise FileError(f"{place}: {TOO_DEEP}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{place}: {error}") from None
    if is_deep(data):
        raise FileError(f"{place}: {TOO_DEEP}")
    return value


def is_deep(data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    brackets = STRING.sub(b"", data).translate(None, NO_BRACKETS)
    for _ in range(DEEPEST):  # each round removes the innermost brackets
        brackets = INNERMOST.sub(b"", brackets)
    return bool(brackets)


def quote(value: Any) -> str:
    """Return the value as JSON. Shorten it if it is long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def describe_error(path: str, error: msgspec.ValidationError, value: Any) -> str:
    """Return `path: value: problem` for a value at `path` that msgspec rejects."""
    problem, _, place = str(error).rpartition(" - at `$")
    if not problem:
        return f"{path}: {quote(value)}: {error}"
    for part in place.rstrip("`").replace("[", ".[").split(".")[1:]:
        inner = value.get(part) if isinstance(value, dict) else None
        if part.startswith("[") and part[1:-1].isdigit() and isinstance(value, list):
            inner = value[int(part[1:-1])]
        if inner is None:  # msgspec does not name the key
            break
        path, value = f"{path}{'' if part.startswith('[') else '.'}{part}", inner
    return f"{path}: {quote(value)}: {problem}"


def check_unique(line: bytes, value: dict[str, Any]) -> None:
    """Raise ValueError if an object in `line` contains a key twice. `value` is the decoded line."""
    # If a key occurs twice, the line has more colons than keys. But a string may contain a colon as
    # well, so decode such a line again and look for repeated keys.
    count = len(value)
    for inner in value.values():
        if type(inner) is dict:
            count += len(inner)
            for inmost in inner.values():
                if type(inmost) is dict:
                    count += len(inmost)
    if line.count(b":") != count:
        json.loads(line, object_pairs_hook=unique_keys)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; for use as an `object_pairs_hook`. Raise ValueError if a key occurs
    twice."""
    read = dict(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {double!a:.60} is given twice in one object")
    return read


def text_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object as `unique_keys` does. Also raise ValueError if a text contains half of a
    surrogate pair."""
    read = unique_keys(pairs)
    for text in (*read, *_texts([*read.values()])):
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"{text!a:.60} is not Unicode text")
    return read


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def write(path: Path, data: bytes) -> None:
    """Write a file that the user named. Raise FileError if it cannot be written."""
    with write_atomically(path) as place, name_file_in_errors(path):
        place.write_bytes(data)


def is_descriptor(path: Path) -> bool:
    """Return whether a path leads to a descriptor of this process, such as `/dev/stdout`.

    If the descriptor is open on a file, that file must not be replaced by a new one of the same
    name: everything else that is written to the descriptor would be lost.
    """
    for _ in range(MOST_LINKS):
        place = path.parent.resolve() / path.name
        if place.is_relative_to("/proc") or not place.is_symlink():
            return place.is_relative_to("/proc")
        path = place.parent / place.readlink()
    return False


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. When the block ends, rename the file to `path`, so that
    no reader sees an incomplete file.

    A file is written in place if it is not regular, such as a pipe, or if no second file can be
    created in its folder. Raise FileError if the file cannot be replaced.
    """
    real = path.resolve()
    # Not the whole name, which may be as long as the file system allows.
    partial = real.with_name(f".{real.name[:40]}.{token_hex(4)}.partial")
    # An unnamed pipe (`>(gzip > FILE)`) exists, although its resolved path does not.
    here = (path.exists() and not path.is_file()) or not os.access(real.parent, os.W_OK)
    # A read-only file must not be replaced.
    here = here or (real.exists() and not os.access(real, os.W_OK))
    if not here:
        with name_file_in_errors(path):
            partial.touch(exist_ok=False)  # never write through a link of this name
    reader = open_pipe(path) if path.is_fifo() else None
    try:
        yield path if here else partial
        if not here:
            with name_file_in_errors(path):
                if real.exists():
                    shutil.copymode(real, partial)
                partial.replace(real)
    finally:
        if reader is not None:
            os.close(reader)
        if not here:
            with suppress(OSError):
                partial.unlink()


def open_pipe(pipe: Path) -> int:
    """Wait until a process reads from a named pipe, and open the pipe for writing.

    A plain `open` would wait forever. Raise FileError if no process reads after READER_LIMIT
    seconds.
    """
    end = time.monotonic() + READER_LIMIT
    while True:
        with name_file_in_errors(pipe):
            try:
                opened = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(opened, True)
                return opened
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
        if time.monotonic() > end:
            raise FileError(f"{pipe}: cannot be written to (nobody reads this pipe)")
        time.sleep(0.05)


@contextmanager
def name_file_in_errors(path: Path | str, what: str = "written to") -> Iterator[None]:
    """Turn an OSError in the block into a FileError that says "PATH: cannot be WHAT". `what` is a
    participle, such as "read"."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be {what} ({error.strerror})") from None
