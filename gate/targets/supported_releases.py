"""Published releases of schedulers: supported versions, and the packages on which they run."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from ...spec.systems import SYSTEMS, part

CHECKOUT = "checkout"  # stands for the version of code that is not released


class ReleaseError(Exception):
    """Raised if a release is not available; the message is one line that says why, and what to
    do."""


@dataclass(frozen=True)
class Package:
    """A package whose releases are schedulers of one system; declared as `RELEASES` in the system's
    folder.

    Attributes:
        name: its name on the package index.
        system: the system of its scheduler.
        versions: for each supported version, oldest first, the version of `runs_on` that it needs,
            or its own version if it runs on no other package.
        revision_of: returns the model's revision to compare a version with.
        size: a description of its download size.
        runs_on: the package whose plugin it is.
        since: later versions than this one are accepted as well, although nobody has examined them.
        environment: environment variables of its process, in addition to those of `runs_on`.
        settings: prefixes of environment variables that the process must not see, because they are
            the user's own settings.
        cache_variable: the environment variable for the folder in which the process may cache
            results.
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
    """A package in one version, which is part of a release."""

    package: Package
    version: str


@dataclass(frozen=True)
class Release:
    """A published version of a scheduler, or a checkout, whose code is in `folder`.

    `base` is the version of the package that it runs on, or its own version if there is none.
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
    """Return the release that NAME==VERSION names; None if the text names no known package. Raise
    ReleaseError if the package is known, but the version is not supported."""
    name, equals, version = text.partition("==")
    name, version = re.sub(r"[-_.]+", "-", name.strip()).lower(), version.strip()
    package = packages().get(name)
    if not equals or package is None:
        return None
    if version in package.versions:
        return Release(name, version, package.versions[version])
    if package.is_accepted_unexamined(version):
        return Release(name, version, version)
    later = (
        f", and any other from {package.since} on, which nobody has tried" if package.since else ""
    )
    raise ReleaseError(
        f"{name}: version {version!r} is not supported; supported are "
        f"{', '.join(package.versions)}{later}"
    )
