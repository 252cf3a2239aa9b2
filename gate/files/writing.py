"""Writing a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .reading import FileError


def write(path: Path, data: bytes) -> None:
    """Write a file that an option names.

    Raises:
        FileError: it cannot be written to.
    """
    with whole(path) as place, naming_file(path):
        place.write_bytes(data)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file that an option names: it appears at the end, whole or not at all.

    What is no regular file (`/dev/stdout`, a pipe), or lies in a folder that takes no second file,
    is written in place: a file must not replace a device.

    Raises:
        FileError: it cannot take its place.
    """
    real = path.resolve()
    partial = real.with_name(f".{real.name}.{os.getpid()}.partial")
    # An unnamed pipe (`>(gzip > FILE)`) is there, but not under its real name.
    here = (path.exists() and not path.is_file()) or not os.access(real.parent, os.W_OK)
    try:
        yield path if here else partial
        if not here:
            with naming_file(path):
                partial.replace(real)
    finally:
        if not here:
            with suppress(OSError):
                partial.unlink()


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """An error of the system, as one of the file that is written.

    Raises:
        FileError: it cannot be written to.
    """
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be written to ({error.strerror})") from None
