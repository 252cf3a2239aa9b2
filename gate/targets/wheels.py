"""Wheels of releases: check that a wheel was published, unpack its Python part, and check that its
files have not changed since.
"""

import base64
import csv
import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from .supported_releases import ReleaseError

# Each line has NAME==VERSION, and the SHA-256 of each of its wheels on the package index.
PUBLISHED = Path(__file__).with_name("wheels.txt")
# Files of a vLLM wheel that are not Python; a scheduler needs none of them.
NOT_PYTHON = (".so", ".h", ".hpp", ".cuh", ".cu", ".png", ".jpg", ".svg", ".a")
MODULES = (".py", ".pyc", ".so")  # files that Python would import
RECORD = "*.dist-info/RECORD"  # lists the name, digest and length of each file of a wheel


def check_published(wheel: Path, name: str) -> bool:
    """Return whether NAME==VERSION is in the list of published wheels. If the list has only other
    wheels of this version, remove this file and raise ReleaseError."""
    known = published_digests().get(name)
    if known is None:
        return False
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest not in known:
        wheel.unlink()
        raise ReleaseError(
            f"{wheel.name} is not what was published as {name}: its SHA-256 is {digest}, "
            f"valid: {', '.join(known)}; check which package index pip uses"
        )
    return True


@cache
def published_digests() -> Mapping[str, tuple[str, ...]]:
    """Return the SHA-256 digests of each release's published wheels."""
    text = PUBLISHED.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {
        name: tuple(re.sub("^--hash=sha256:", "", wheel) for wheel in of) for name, *of in lines
    }


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the Python part of a wheel. Raise ReleaseError if the wheel is damaged, or has paths
    outside the folder."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                path = PurePosixPath(member)
                if path.is_absolute() or ".." in path.parts or "\\" in member:
                    raise zipfile.BadZipFile(f"{member!r} would be outside the folder")
                if _is_wanted(path):
                    archive.extract(member, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        wheel.unlink()  # otherwise the next run would use it again
        raise ReleaseError(f"cannot unpack {wheel.name}: {error}; run again") from error


def _is_wanted(path: PurePosixPath) -> bool:
    if "third_party" in path.parts:
        return path.suffix == ".py"
    return path.suffix not in NOT_PYTHON


def difference(folder: Path) -> str:
    """Return the name of a file of an unpacked wheel that has changed, or of a module that is not
    in the wheel; "" if there is neither. Modules that Python has compiled are ignored."""
    listed = {row[0]: row[1] for row in _rows(folder) if _is_wanted(PurePosixPath(row[0]))}
    if not listed:
        return "RECORD"
    for name, digest in listed.items():
        if not _is(folder / name, digest):
            return name
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.suffix in MODULES and name not in listed and "__pycache__" not in path.parts:
            return name
    return ""


def _rows(folder: Path) -> Iterator[list[str]]:
    for record in folder.glob(RECORD):
        try:
            with record.open(encoding="utf-8", newline="") as file:
                yield from (row for row in csv.reader(file) if len(row) == 3)
        except (OSError, ValueError, csv.Error):
            return


def _is(file: Path, digest: str) -> bool:
    """Return whether the file exists and has this digest. An empty digest, which RECORD has for
    itself, matches any content."""
    try:
        actual = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return False
    return not digest or digest == f"sha256={base64.urlsafe_b64encode(actual).decode().rstrip('=')}"
