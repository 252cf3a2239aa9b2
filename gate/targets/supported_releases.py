"""Describe the supported releases of schedulers, and the packages on which each release runs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from ...spec.systems import SYSTEMS, part

CHECKOUT = "checkout"  # the version that stands for unreleased code


class ReleaseError(Exception):
    """Raised if a release is not available. The message is one line that says what to do."""


@dataclass(frozen=True)
class Package:
    """A package whose releases contain a scheduler, declared as `RELEASES` in the folder of its
    system.

    Attributes:
        versions: maps each supported version, oldest first, to the version of `runs_on` that it
            needs, or to itself if the package runs on no other.
        revision_of: a function that returns the revision of the model to compare a version with.
        since: later versions than this one are accepted as well, untested.
        settings: prefixes of environment variables with the user's own settings, which are not
            passed to the process.
        cache_variable: the environment variable for the folder of the package's own cache.
        imports: slow modules of other packages that every version imports.
    """

    name: str
    system: str
    versions: Mapping[str, str]
    revision_of: Callable[[str], str]
    size: str
    runs_on: "Package | None" = None
    since: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[str] = ()
    cache_variable: str = ""
    imports: Sequence[str] = ()

    def is_accepted_unexamined(self, version: str) -> bool:
        if self.since is None:
            return False
        try:
            number = Version(version.partition("+")[0])
        except InvalidVersion:
            return False
        is_plain = str(number) == version and len(number.release) == 3
        return is_plain and number >= Version(self.since)


class Layer(NamedTuple):
    """A package that is part of a release, and its version."""

    package: Package
    version: str


@dataclass(frozen=True)
class Release:
    """A published version of a scheduler, or a checkout whose code is in `folder`.

    If the scheduler runs on another package, `base` is the version of that package; otherwise, it
    is the scheduler's own version.
    """

    name: str
    version: str
    base: str
    folder: Path | None = None

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def package(self) -> Package:
        return packages()[self.name]

    @property
    def system(self) -> str:
        return self.package.system

    @property
    def revision(self) -> str:
        return self.package.revision_of(self.version)

    @property
    def is_examined(self) -> bool:
        return self.version in self.package.versions

    @property
    def layers(self) -> list[Layer]:
        own, base = Layer(self.package, self.version), self.package.runs_on
        return [own] if base is None else [Layer(base, self.base), own]

    @property
    def wheels(self) -> list[Layer]:
        return self.layers if self.folder is None else self.layers[:-1]


def packages() -> dict[str, Package]:
    return {package.name: package for name in SYSTEMS for package in part(name, "releases") or ()}


def parse_release(text: str) -> Release | None:
    """Return the release that NAME==VERSION names, or None if NAME is not a known package. Raise
    ReleaseError if the version is not supported."""
    name, equals, version = text.partition("==")
    name, version = re.sub(r"[-_.]+", "-", name.strip()).lower(), version.strip()
    package = packages().get(name)
    if not equals or package is None:
        return None
    if version in package.versions:
        return Release(name, version, package.versions[version])
    if package.is_accepted_unexamined(version):
        return Release(name, version, version)
    later = f", and, untested, any later version from {package.since} on" if package.since else ""
    raise ReleaseError(
        f"{name}: version {version!r} is not supported; supported are "
        f"{', '.join(package.versions)}{later}"
    )
