"""Install a real release once, for the CPU, and run it as a target.

One virtual environment serves all releases; PYTHONPATH selects one of them. The environment
contains every package that the schedulers import, in fixed versions. Their dependencies are not
installed, so that pip cannot install CUDA or triton. Of vLLM, only the Python part is kept.

Each part of an installation is built in a temporary folder, which is renamed once the part is
complete. So a part that exists is always complete.
"""

import base64
import contextlib
import csv
import fcntl
import hashlib
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from packaging.version import Version
from platformdirs import user_cache_path

from ...model.errors import InputError
from ..processes.watchdog import run_watched
from .checkouts import ADAPTERS, metadata_folder
from .scheduler_class import VARIABLE
from .supported_releases import Layer, Release, ReleaseError, packages, parse_release

PIP = (sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input")


def releases_of(name: str) -> list[str]:
    """Return the releases of this package that can be judged, as NAME==VERSION, oldest first."""
    if (package := packages().get(name)) is None:
        valid = ", ".join(packages())
        raise ReleaseError(f"{name!r} is not a release; valid: {valid}")
    versions = [*package.versions] if package.since is None else _on_index(name)
    return [f"{name}=={version}" for version in sorted(versions, key=Version)]


def _on_index(name: str) -> list[str]:
    done = subprocess.run(
        [*PIP, "index", "versions", name], capture_output=True, text=True, check=False
    )
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        raise ReleaseError(
            f"{name}: {complaint(done.stdout + done.stderr)}; or name releases as {name}==VERSION"
        )
    return [version for version in listed[1].split(", ") if _can_be_judged(name, version)]


def _can_be_judged(name: str, version: str) -> bool:
    try:
        return parse_release(f"{name}=={version}") is not None
    except ReleaseError:
        return False


TORCH = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# For packages that only have wheels for Linux. Their Python part is the same everywhere.
LINUX = ("manylinux1", "manylinux2014", "manylinux_2_28", "manylinux_2_31", "manylinux_2_35")

UNFINISHED = ".partial"
PACKAGES = Path(__file__).with_name("packages.txt")
# The list of packages is complete, so pip has no dependencies to resolve. Modules are compiled on
# their first import, since most are never imported.
INSTALL = ("--no-deps", "--no-compile")
NO_NETWORK = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ProxyError")

Report = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """The command and environment of an installed release, and the slow modules of other packages
    that it imports: `PipeTarget(command, env=env, imports=imports)`."""

    command: list[str]
    env: dict[str, str]
    imports: Sequence[str] = ()


def prepare(
    release: Release, scheduler: str = "", *, offline: bool = False, report: Report = print
) -> Prepared:
    """Install the missing parts of a release, and return how to run it.

    The first release takes 1.1 GB of disk space and two minutes. Only one process installs at a
    time; others wait. `scheduler` names a class that replaces the release's scheduler, as
    FILE:CLASS. Raise ReleaseError if the release cannot be installed.
    """
    cache = cache_folder()
    environment, *trees = parts = _parts(cache, release)
    python = environment.folder / "bin" / "python"
    missing = [part for part in parts if not part.is_there()]
    if missing and offline:
        raise ReleaseError(
            f"not installed: {', '.join(part.why_missing() for part in missing)}; "
            f"install with: schedproof gate {release} (without --offline)"
        )
    if not release.is_examined and release.folder is None:
        report(
            f"schedproof has not been tried with {release}, but only with "
            f"{', '.join(release.package.versions)}; `schedproof doctor {release}` shows whether "
            "it can be judged"
        )
    try:
        if missing:
            _install(missing, python, cache, report)
    except OSError as error:
        raise ReleaseError(
            f"cannot install into {cache}: {error.filename or cache}: {error.strerror or error}; "
            "set SCHEDPROOF_CACHE to a folder with 3 GB of free space"
        ) from error
    path = [tree.folder for tree in trees]
    if release.folder is not None:
        path.append(release.folder)
        if release.package.runs_on is not None:  # plugins are found by their metadata
            path.append(metadata_folder(release.folder, cache / "checkouts" / release.name))
    env = _variables(release, cache, path) | ({VARIABLE: scheduler} if scheduler else {})
    command = [str(python), str(ADAPTERS), release.system]
    return Prepared(command, env, release.layers[0].package.imports)


def cache_folder() -> Path:
    """Return the folder of installed releases: $SCHEDPROOF_CACHE, or a folder in the user's
    cache."""
    if chosen := os.environ.get("SCHEDPROOF_CACHE"):
        return Path(chosen).expanduser().absolute()
    return user_cache_path("schedproof").absolute()


def code_of(release: Release) -> Path:
    """Return the folder that contains the package of an installed release or of a checkout."""
    return release.folder or cache_folder() / f"{release.name}-{release.version}"


def checkout_at(folder: Path, revision: str, name: str) -> Path:
    """Return a folder in the cache that contains one revision of the repository in `folder`."""
    valid = f"a release such as vllm==0.28.0, or a revision of the repository in {folder}"
    git = ["git", "-C", str(folder)]
    words = [*git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    try:
        named = run_watched(words)
    except OSError as error:
        problem = f"{revision!r:.60}: git cannot be run ({error.strerror}); valid: {valid}"
        raise InputError("--base", problem) from None
    commit = named.stdout.decode().strip()
    if named.returncode:
        raise InputError("--base", f"{revision!r:.60}; valid: {valid}")
    place = cache_folder() / "checkouts" / f"{name}-{commit[:12]}"
    if not place.is_dir():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            archive = Path(scratch) / "files.tar"
            ended = run_watched(
                [*git, "archive", f"--output={archive}", commit], stderr=subprocess.STDOUT
            )
            if ended.returncode:
                raise InputError("--base", f"{revision!r:.60}: {complaint(ended.stdout.decode())}")
            with tarfile.open(archive) as files:
                files.extractall(Path(scratch) / "files", filter="data")
            with contextlib.suppress(OSError):  # another run has already created it
                (Path(scratch) / "files").rename(place)
    return place


def _variables(release: Release, cache: Path, path: list[Path]) -> dict[str, str]:
    # A run must not depend on the environment, so drop the user's settings, and those of a gate
    # that may have started this process.
    prefixes = [prefix for package in packages().values() for prefix in package.settings]
    foreign = ("PYTHON", "SCHEDPROOF_", *prefixes)
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    env |= {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONHASHSEED": "0",  # so that the order of sets is the same in every run
    }
    for package, version in release.layers:
        env |= package.environment
        if package.cache_variable:
            env[package.cache_variable] = str(cache / f"{package.name}-cache" / version)
    return env


@dataclass(frozen=True)
class _Part:
    folder: Path
    title: str
    size: str
    build: Callable[["_Workshop", Path], None]
    # A function that returns the name of a file that is missing from the folder or has changed, or
    # "".
    damage: Callable[[Path], str]

    def is_there(self) -> bool:
        return self.folder.is_dir() and not self.damage(self.folder)

    def why_missing(self) -> str:
        if not self.folder.exists():
            return self.title
        return f"{self.title} ({self.damage(self.folder)} has changed since it was installed)"


def _parts(cache: Path, release: Release) -> list[_Part]:
    made_of = [TORCH, *_packages(), sys.platform, platform.machine()]
    made_of += map(str, sys.version_info[:2])
    name = "env-" + hashlib.sha256(" ".join(made_of).encode()).hexdigest()[:12]
    environment = _Part(cache / name, "Python environment", "1.1 GB", _build_environment, _gone)
    return [environment, *(_tree(cache, layer) for layer in release.wheels)]


def _packages() -> list[str]:
    lines = PACKAGES.read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if re.match(r"[\w-]+==", line)]


def _gone(environment: Path) -> str:
    # An environment links to the Python that created it. If that Python has been uninstalled, the
    # link is broken.
    name = "bin/python"
    return "" if (environment / name).exists() else name


def _tree(cache: Path, layer: Layer) -> _Part:
    package, version = layer.package.name, layer.version

    def build(workshop: _Workshop, folder: Path) -> None:
        unpack(workshop.download(package, version), folder)

    folder = cache / f"{package}-{version}"
    return _Part(folder, f"{package} {version}", layer.package.size, build, difference)


def _install(parts: list[_Part], python: Path, cache: Path, report: Report) -> None:
    # Code in the cache is executed, so only this user may write there, whatever the umask.
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(cache / "lock", report) as lock:
        workshop = _Workshop(cache / "downloads", python, lock, report)
        for unfinished in cache.glob(f"*{UNFINISHED}"):  # left by interrupted runs
            _remove(unfinished)
        for part in parts:
            # Another process may have created it while we waited for the lock.
            if not part.is_there():
                _make(part, workshop)


def _make(part: _Part, workshop: "_Workshop") -> None:
    if part.folder.exists():
        workshop.report(f"{part.why_missing()}: installing all of it again")
    for leftover in (workshop.scratch, part.folder):  # left by an interrupted run
        _remove(leftover)
    unfinished = part.folder.with_name(part.folder.name + UNFINISHED)
    workshop.report(f"{part.title}: {part.size}")
    began = time.monotonic()
    unfinished.mkdir()
    try:
        part.build(workshop, unfinished)
        unfinished.rename(part.folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    shutil.rmtree(workshop.downloads, ignore_errors=True)
    size = math.ceil(sum(file.lstat().st_size for file in part.folder.rglob("*")) / 1e6)
    workshop.report(f"{part.title}: {size} MB in {time.monotonic() - began:.0f} s")


def _remove(path: Path) -> None:
    """Remove a file or folder; if it is a link, remove only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path, report: Report) -> Iterator[int]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another installation to finish")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


@dataclass(frozen=True)
class _Workshop:
    downloads: Path
    python: Path
    lock: int
    report: Report

    @property
    def scratch(self) -> Path:
        return self.downloads / "scratch"

    def download(self, package: str, version: str) -> Path:
        """Download a wheel. It is kept until it has been unpacked, even if the installation is
        interrupted."""
        kept = self.downloads / f"{package}-{version}"
        if not any(kept.glob("*.whl")):
            arriving = self.scratch / "arriving"
            # Without pip's cache: it would keep copies of wheels that are deleted here after
            # unpacking.
            options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", f"--dest={arriving}"]
            options += [f"--platform={linux}_x86_64" for linux in LINUX]
            self.pip(self.python, "download", *options, f"{package}=={version}")
            _remove(kept)
            arriving.replace(kept)
        wheel = next(kept.glob("*.whl"))
        if not check_published(wheel, f"{package}=={version}"):
            self.report(f"{package} {version}: its wheel is not checked (no list has its digest)")
        return wheel

    def pip(self, python: Path, command: str, *arguments: str) -> None:
        quiet = ("--no-input", "--disable-pip-version-check", "--progress-bar=off")
        self.run(str(python), "-P", "-m", "pip", command, *quiet, *arguments)

    def run(self, *command: str) -> str:
        self.scratch.mkdir(parents=True, exist_ok=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        env |= {"TMPDIR": str(self.scratch), "PIP_USER": "0"}
        code, output = run(command, env, self.lock)
        if code:
            raise ReleaseError(complaint(output))
        return output


def run(command: Sequence[str], env: dict[str, str], lock: int) -> tuple[int, str]:
    """Run a child process that also holds the lock, because it may continue to write after
    schedproof is killed."""
    done = run_watched(command, env=env, pass_fds=(lock,), stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode(errors="replace")


def _build_environment(workshop: _Workshop, folder: Path) -> None:
    try:
        workshop.run(sys.executable, "-P", "-m", "venv", str(folder))
    except ReleaseError as failure:
        why = f"{sys.executable} cannot create a virtual environment ({failure})"
        raise ReleaseError(f"{why}; on Debian and Ubuntu install python3-venv") from None
    python = folder / "bin" / "python"
    workshop.report(f"torch {TORCH} (CPU), about 200 MB")
    _install_torch(workshop, python)
    workshop.report(f"{len(_packages())} packages in fixed versions, about 200 MB")
    workshop.pip(python, "install", *INSTALL, f"--requirement={PACKAGES}")
    cuda = workshop.run(str(python), "-P", "-c", "import torch; print(torch.version.cuda)").split()
    if cuda[-1] != "None" or any(folder.glob("lib/python*/site-packages/nvidia*")):
        raise ReleaseError(
            f"the package index offered a CUDA build of torch {TORCH}, not one for the CPU"
        )


def _install_torch(workshop: _Workshop, python: Path) -> None:
    ways = [[f"torch=={TORCH}+cpu"], [f"torch=={TORCH}", f"--index-url={CPU_INDEX}"]]
    if sys.platform == "darwin":
        ways = [[f"torch=={TORCH}"]]
    for way in ways:
        try:
            return workshop.pip(python, "install", *INSTALL, *way)
        except ReleaseError as error:
            failure = error
    raise ReleaseError(
        f"no CPU build of torch {TORCH} was found ({failure}); "
        "set PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL to a folder or index that has one"
    )


def complaint(output: str) -> str:
    """Return the line of a failed process (usually pip) that gives the reason of the failure."""
    missing = re.search(r"satisfies the requirement (\S+) \(from versions: (.*)\)", output)
    if missing and "require a different python version" in output:
        return f"{missing[1]} does not support this Python ({platform.python_version()})"
    if missing and missing[2] != "none":
        offered = ", ".join(missing[2].split(", ")[-8:])
        return f"the package index has no {missing[1]} for this machine; it has {offered}"
    if any(sign in output for sign in NO_NETWORK):
        return "the package index cannot be reached; check the network, and run the command again"
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1]


# Each line contains NAME==VERSION and the SHA-256 of each of its wheels on the package index.
PUBLISHED = Path(__file__).with_name("wheels.txt")
# Files in vLLM's wheel that are not Python. A scheduler needs none of them.
NOT_PYTHON = (".so", ".h", ".hpp", ".cuh", ".cu", ".png", ".jpg", ".svg", ".a")
MODULES = (".py", ".pyc", ".so")  # files that Python would import
RECORD = "*.dist-info/RECORD"  # lists the name, digest and length of each file of a wheel


def check_published(wheel: Path, name: str) -> bool:
    """Return whether the list of published wheels contains this wheel.

    If the list contains other wheels of this release but not this one, remove the file and raise
    ReleaseError.
    """
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
    """Unpack the Python part of a wheel; raise ReleaseError if it is damaged."""
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
    """Return the name of a file in an unpacked wheel that has changed, or of a module that does not
    belong to the wheel, or "". Compiled modules are ignored."""
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
    """Return whether the file has this digest. An empty digest always matches, because RECORD has
    an empty digest for itself."""
    try:
        actual = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return False
    return not digest or digest == f"sha256={base64.urlsafe_b64encode(actual).decode().rstrip('=')}"
