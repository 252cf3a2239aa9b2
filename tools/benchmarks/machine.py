"""Describe the machine that figures were measured on: its hardware, its load, and its software
versions."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from schedproof import __version__

PACKAGES = (
    *("hypothesis", "msgspec", "z3-solver", "cvc5"),
    *("numpy"),
)


class Machine(msgspec.Struct, frozen=True):
    """The machine and the software that the figures depend on.

    Attributes:
        cores: how many of the machine's `cores_there` cores this process may use.
        memory_mb: the machine's memory; None if the system does not report it.
        load: the mean number of runnable processes in the minute before the first measurement.
        versions: the installed versions, by name.
    """

    cpu: str
    cores: int
    cores_there: int
    memory_mb: int | None
    load: float
    system: str
    versions: dict[str, str]


def this_machine() -> Machine:
    """Describe the machine as it is now."""
    processors = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else processors
    return Machine(
        cpu=_cpu(),
        cores=usable,
        cores_there=processors,
        memory_mb=_memory_mb(),
        load=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.release()}",
        versions=_versions(),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_mb() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    except (ValueError, OSError):
        return None


def _versions() -> dict[str, str]:
    found = {"schedproof": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if shutil.which("spin") is not None:
        reported = subprocess.run(
            ["spin", "-V"], capture_output=True, text=True, check=False
        ).stdout
        found["spin"] = next(iter(reported.split("--")), "").removeprefix("Spin Version").strip()
    return found
