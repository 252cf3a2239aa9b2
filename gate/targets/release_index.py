"""List the releases of a package: the supported ones, or what the package index has."""

import re
import subprocess
import sys

from packaging.version import Version

from .releases import complaint
from .supported_releases import ReleaseError, packages, parse_release

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


def releases_of(name: str) -> list[str]:
    """Return the releases of this name that can be judged, as NAME==VERSION, the oldest first.

    Raises:
        ReleaseError: an unknown name, or no answer from the package index.
    """
    if (package := packages().get(name)) is None:
        valid = ", ".join(packages())
        raise ReleaseError(f"{name!r} is no name of a release; valid: {valid}")
    versions = [*package.versions] if package.since is None else _on_index(name)
    return [f"{name}=={version}" for version in sorted(versions, key=Version)]


def _on_index(name: str) -> list[str]:
    done = subprocess.run(
        [*PIP, "index", "versions", name], capture_output=True, text=True, check=False
    )
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        raise ReleaseError(
            f"{name}: {complaint(done.stdout + done.stderr)}; or name releases, {name}==VERSION"
        )
    return [version for version in listed[1].split(", ") if _can_be_judged(name, version)]


def _can_be_judged(name: str, version: str) -> bool:
    try:
        return parse_release(f"{name}=={version}") is not None
    except ReleaseError:
        return False
