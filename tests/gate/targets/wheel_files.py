"""Wheels for tests."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(path: Path, members: Mapping[str, str]) -> Path:
    """A wheel of these files, and of their RECORD."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = f"{'-'.join(path.name.split('-')[:2])}.dist-info/RECORD"
    rows = [f"{name},sha256={sha256(text)},{len(text)}" for name, text in members.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**members, record: "\n".join([*rows, f"{record},,"])}.items():
            archive.writestr(name, text)
    return path


def sha256(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
