"""Run the scheduler of a checkout, a folder of source code that the user names.

A checkout is not installed, but vLLM finds plugins by their entry points, and some plugins look up
their own version. So a folder with such metadata is put on the process's path, as if the checkout
were an installed package.
"""

import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ...model.errors import InputError
from ...spec.systems import SYSTEMS, part
from ..files.disk import write
from ..processes.watchdog import run_watched
from .supported_releases import CHECKOUT, Package, Release, packages

VERSION = "0+checkout"
ANY_LATER = "9999"  # a version later than any real one


def read_project(file: Path) -> dict[str, Any]:
    """Return the [project] table of a pyproject.toml; raise InputError if it cannot be read."""
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError) as error:
        raise InputError("--path", f"{file}: cannot be read ({error})") from None
    if not isinstance(project, dict) or not isinstance(project.get("name"), str):
        raise InputError("--path", f"{file}: $.project.name: missing; valid: a package's name")
    return project


def metadata_folder(checkout: Path, folder: Path) -> Path:
    """Create a folder inside `folder` with the checkout's metadata, and return it. The caller puts
    it on the process's path."""
    project = read_project(checkout / "pyproject.toml")
    name = project["name"].replace("-", "_")
    made = folder / f"{name}-{VERSION}.dist-info"
    made.mkdir(parents=True, exist_ok=True)
    lines = []
    for group, points in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{key} = {where}" for key, where in points.items())]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
    write(made / "METADATA", metadata.encode())
    write(made / "entry_points.txt", "\n".join([*lines, ""]).encode())
    return folder


ADAPTERS = Path(__file__).with_name("run_adapter.py")


@dataclass(frozen=True)
class Checkout:
    """A scheduler in a checkout; declared as `CHECKOUT` in the folder of its system.

    Attributes:
        variable: the environment variable that gives the checkout's folder if the command line does
            not.
        needs: files that every supported checkout contains; "A|B" means A or B.
        newer: a file and a text. In newer code, the file exists and contains the text.
        revisions: the revisions for newer and older code; None for code that no adapter can drive.
        package: the package of which the checkout is a development version; it runs in that
            package's environment.
        by_version: whether newer code is compared with the revision that belongs to its version, if
            the version is known.
    """

    name: str
    system: str
    variable: str
    needs: tuple[str, ...]
    newer: tuple[str, str]
    revisions: tuple[str, str | None]
    supported: str
    package: Package | None = None
    by_version: bool = False


def known_checkouts() -> dict[str, Checkout]:
    """Return the checkouts of all registered systems, by the names that users write."""
    parts = [part(name, "checkout") for name in SYSTEMS]
    return {checkout.name: checkout for checkout in parts if checkout is not None}


def parse_checkout(spec: str) -> tuple[Checkout, str] | None:
    """Return the checkout and the folder that NAME or NAME:DIR refers to; None for other
    targets."""
    name, _, folder = spec.partition(":")
    checkout = known_checkouts().get(name)
    return None if checkout is None else (checkout, folder)


def with_path(spec: str, path: Path | None) -> str:
    if path is None:
        return spec
    checkouts = known_checkouts()
    if spec not in checkouts:
        if parse_checkout(spec) is not None:
            raise InputError("--path", f"{path}: {spec} already names a folder")
        raise InputError("--path", f"{path}: valid only for {', '.join(checkouts)}, not for {spec}")
    return f"{spec}:{path}"


def folder_of(checkout: Checkout, folder: str) -> Path:
    """Return the folder of a checkout: `folder`, or else the folder that the environment
    variable names. Raise InputError if it is not a checkout."""
    where, path = "--path", folder or os.environ.get(checkout.variable, "")
    if not path:
        release = f"; a release is {checkout.name}==VERSION" * (checkout.name in packages())
        problem = f"for a checkout add --path FOLDER, or set ${checkout.variable}{release}"
        raise InputError(checkout.name, problem)
    if not folder:
        where = f"${checkout.variable}"
    valid = f"valid: a checkout of {checkout.system}"
    if not Path(path).is_dir():
        raise InputError(where, f"{path}: no such folder; {valid}")
    for file in checkout.needs:
        if not any((Path(path) / choice).is_file() for choice in file.split("|")):
            missing = file.replace("|", " and no ")
            raise InputError(where, f"{path} has no {missing}; {valid}")
    return Path(path).absolute()


def revision_of(checkout: Checkout, folder: str) -> str:
    """Return the revision to compare the checkout's code with. Raise InputError if no revision
    fits."""
    path = folder_of(checkout, folder)
    name, words = checkout.newer
    file = path / name
    code = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    newer, older = checkout.revisions
    if words in code:
        if checkout.package is not None and checkout.by_version:
            return checkout.package.revision_of(
                version_in(path, checkout.package.name) or ANY_LATER
            )
        return newer
    if older is None:
        problem = f"{path} has a version that is not supported; valid: {checkout.supported}"
        raise InputError("--path", problem)
    return older


def version_in(folder: Path, name: str) -> str | None:
    """Return the version of the code in a folder, or None if it is unknown. The version comes from
    the last tag, the metadata next to an unpacked wheel, or a file that the build wrote."""
    versions = []
    if (folder / ".git").exists():
        words = ["git", "-C", str(folder), "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
        with suppress(OSError):  # git is not installed
            described = run_watched(words, stderr=subprocess.DEVNULL).stdout
            versions.append(described.decode(errors="replace").strip().removeprefix("v"))
    versions += [entry.stem.partition("-")[2] for entry in folder.glob(f"{name}-*.dist-info")]
    with suppress(OSError):
        build = (folder / name / "_version.py").read_text(encoding="utf-8", errors="replace")
        versions += re.findall(r"^(?:__version__ = )?version = '([^']+)'", build, re.MULTILINE)
    return next((version for version in versions if _is_version(version)), None)


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


def command_of(checkout: Checkout, folder: str) -> tuple[list[str], dict[str, str]]:
    path = str(folder_of(checkout, folder))
    env = {**os.environ, checkout.variable: path, "PYTHONHASHSEED": "0"}
    return [sys.executable, str(ADAPTERS), checkout.system], env


def release_of(package: Package, checkout: Checkout, folder: str) -> Release:
    path = folder_of(checkout, folder)
    base = CHECKOUT
    if package.runs_on is not None:
        base = _base_for(package.runs_on, path / "pyproject.toml")
    return Release(package.name, CHECKOUT, base, path)


def _base_for(base: Package, file: Path) -> str:
    try:
        needs = [Requirement(text) for text in read_project(file).get("dependencies", ())]
    except (InvalidRequirement, TypeError) as error:
        problem = str(error).partition("\n")[0]
        raise InputError("--path", f"{file}: $.project.dependencies: {problem}") from None
    needs = [requirement for requirement in needs if requirement.name == base.name]
    for version in reversed(list(base.versions)):
        if all(requirement.specifier.contains(version) for requirement in needs):
            return version
    needed, valid = ", ".join(map(str, needs)), ", ".join(base.versions)
    raise InputError("--path", f"{file}: needs {needed}; valid: one of {valid}")
