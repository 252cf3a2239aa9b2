"""Reading a file of the user's: a regular one, and no more of it than it can mean."""

import stat
import tomllib
from pathlib import Path
from typing import Any


class FileError(ValueError):
    """A file that cannot be used; `str()` is one line with the file, the JSON path, the value."""


MAX_TOML = 1024 * 1024  # bytes of a configuration


def check_regular(path: Path) -> None:
    """Refuse what is no regular file: a pipe or a device may never end.

    Raises:
        FileError: a folder, a pipe, a device, or nothing at all.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{str(path)!a}: {error}") from None
    if stat.S_ISDIR(mode):
        raise FileError(f"{path}: cannot be read (Is a directory)")
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: no regular file; valid: a file")


def read_text(path: Path, most: int, kind: str) -> str:
    """The text of a `kind` of file, of at most so many bytes.

    Raises:
        FileError: no regular file, a larger one, or one that is no UTF-8.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise FileError(f"{path}: larger than {most} bytes, which no {kind} is")
        return data.decode("utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: byte {error.start} is not UTF-8") from None


def read_toml(path: Path, kind: str) -> dict[str, Any]:
    """What a `kind` of TOML file says.

    Raises:
        FileError: as for `read_text`, or no TOML.
    """
    text = read_text(path, MAX_TOML, kind)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not TOML: {error}") from None
