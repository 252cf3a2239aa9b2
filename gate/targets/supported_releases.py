"""Published releases of schedulers: which are supported, and the packages that they run on."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from ...spec.systems import SYSTEMS, part

CHECKOUT = "checkout"  # the version of what is not released


class ReleaseError(Exception):
    """A release cannot be had; one line that says why and what to do."""


@dataclass(frozen=True)
class Package:
    """A package whose releases are schedulers of one system: in `RELEASES` of the system's folder.

    Attributes:
        name: as the package index has it.
        system: whose scheduler it is.
        versions: by supported version, the oldest first, the version of `runs_on` that it needs; if
            it runs on no other package, its own.
        revision_of: which revision of the model a version is compared with.
        size: how large its download is, in words.
        runs_on: the package whose plugin it is.
        since: versions from this one on are accepted as well, unexamined.
        environment: variables of its process, beside those of `runs_on`.
        settings: how the names of variables begin that the process must not see, as they are a
            user's own settings.
        cache_variable: names the folder in which the process may keep what it computes.
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
    """A package in one version, as a part of a release."""

    package: Package
    version: str


@dataclass(frozen=True)
class Release:
    """A published version of a scheduler, or a checkout, whose code is in `folder`.

    `base` is the version of the package that it runs on; if there is none, its own.
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
        """What it is made of: the package that it runs on, if any, and its own."""
        own, base = Layer(self.package, self.version), self.package.runs_on
        return [own] if base is None else [Layer(base, self.base), own]

    @property
    def wheels(self) -> list[Layer]:
        """The layers that are installed as wheels: all, but for the code of a checkout."""
        return self.layers if self.folder is None else self.layers[:-1]


def packages() -> dict[str, Package]:
    return {package.name: package for name in SYSTEMS for package in part(name, "releases") or ()}


def parse_release(text: str) -> Release | None:
    """Return the release that NAME==VERSION names; None if the text names no known package.

    Raises:
        ReleaseError: the package is known, and the version is not supported.
    """
    name, equals, version = text.partition("==")
    name, version = re.sub(r"[-_.]+", "-", name.strip()).lower(), version.strip()
    package = packages().get(name)
    if not equals or package is None:
        return None
    if version in package.versions:
        return Release(name, version, package.versions[version])
    if package.is_accepted_unexamined(version):
        return Release(name, version, version)
    later = f", and others from {package.since} on, untried" if package.since else ""
    raise ReleaseError(
        f"{name}: version {version!r} is not supported; supported are "
        f"{', '.join(package.versions)}{later}"
    )
