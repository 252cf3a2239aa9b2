"""Writing a file whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from .scenario_file import FileError


def write(path: Path, data: bytes) -> None:
    """Write a file that an option names, whole or not at all.

    What is no regular file (`/dev/stdout`, a pipe), or lies in a folder that takes no second file,
    is written in place.

    Raises:
        FileError: it cannot be written to.
    """
    real = path.resolve()
    partial = real.with_name(f".{os.getpid()}.partial")
    try:
        # An unnamed pipe (`>(gzip > FILE)`) is there, but not under its real name.
        if (path.exists() and not path.is_file()) or not os.access(real.parent, os.W_OK):
            path.write_bytes(data)
        else:
            partial.write_bytes(data)
            partial.replace(real)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise FileError(f"{path}: cannot be written to ({error.strerror})") from None
