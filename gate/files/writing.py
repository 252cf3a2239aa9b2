"""Write files whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .reading import FileError


def write(path: Path, data: bytes) -> None:
    """Write a file that an option names. Raise FileError if the file cannot be written to."""
    with whole(path) as place, naming_file(path):
        place.write_bytes(data)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to. When the block ends, the file appears under its own name, whole or
    not at all.

    A path that is not a regular file, such as `/dev/stdout`, is written in place, because a file
    must not replace a device. So is a path whose folder cannot hold a second file. Raise FileError
    if the file cannot be replaced.
    """
    real = path.resolve()
    partial = real.with_name(f".{real.name}.{os.getpid()}.partial")
    # An unnamed pipe (`>(gzip > FILE)`) exists, but its resolved path does not.
    here = (path.exists() and not path.is_file()) or not os.access(real.parent, os.W_OK)
    here = here or (real.exists() and not os.access(real, os.W_OK))  # a read-only file is kept
    try:
        yield path if here else partial
        if not here:
            with naming_file(path):
                if real.exists():
                    shutil.copymode(real, partial)
                partial.replace(real)
    finally:
        if not here:
            with suppress(OSError):
                partial.unlink()


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a FileError that names the file."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be written to ({error.strerror})") from None
