"""Which code runs: a digest, so that results of other code are not mixed with ours."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


@cache
def code_version(*layers: str) -> str:
    """Return a digest of the Python and TOML files of these layers, in hexadecimal digits."""
    digest = hashlib.sha256()
    for layer in layers:
        for path in sorted((PACKAGE / layer).rglob("*.*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
