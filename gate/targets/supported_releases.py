"""Published releases of schedulers: which are supported, and the packages that they run on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

VLLM_OF: Mapping[str, Mapping[str, str]] = {
    "vllm-spyre": {"1.10.0": "0.18.0"},
    "sendnn-inference": {
        **dict.fromkeys(("2.0.0", "2.0.1"), "0.19.1"),
        **dict.fromkeys(("2.1.0", "2.1.1", "2.1.2", "2.1.3", "2.1.4"), "0.19.1"),
        **dict.fromkeys(("2.2.0", "2.2.2", "2.2.4"), "0.19.1"),
        **dict.fromkeys(("2.3.0", "2.3.1", "2.4.0", "2.5.0", "2.5.1", "2.5.2"), "0.24.0"),
        **dict.fromkeys(("2.6.0", "2.6.1"), "0.27.1"),
        **dict.fromkeys(("2.6.2", "2.6.3"), "0.28.0"),
    },
    "vllm": {version: version for version in ("0.19.1", "0.24.0", "0.27.1", "0.28.0", "0.33.0")},
}
OLDEST = Version("0.18.0")  # of vLLM, whose later versions are tried without having been examined
TORCH = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class ReleaseError(Exception):
    """A release cannot be had; one line that says why and what to do."""


@dataclass(frozen=True)
class Release:
    """A published version of a scheduler, and the version of vLLM that it runs on; or a checkout,
    whose code is in `folder`."""

    name: str
    version: str
    vllm: str
    folder: Path | None = None

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def system(self) -> str:
        """The system that it is a release of."""
        return "vllm" if self.name == "vllm" else "spyre"

    @property
    def is_examined(self) -> bool:
        """The adapter was tried on it."""
        return self.version in VLLM_OF[self.name]


def parse_release(text: str) -> Release | None:
    """The release that NAME==VERSION names; None if the text names none that is known. Of vLLM
    later versions than those of the list are taken, too.

    Raises ReleaseError if the name is known and the version is not supported.
    """
    name, equals, version = text.partition("==")
    name, version = re.sub(r"[-_.]+", "-", name.strip()).lower(), version.strip()
    if not equals or name not in VLLM_OF:
        return None
    supported = VLLM_OF[name]
    if name == "vllm" and _is_tried(version):
        return Release(name, version, version)
    if version not in supported:
        later = f", and others from {OLDEST} on, untried" if name == "vllm" else ""
        raise ReleaseError(
            f"{name}: version {version!r} is not supported; supported are "
            f"{', '.join(supported)}{later}"
        )
    return Release(name, version, supported[version])


def _is_tried(version: str) -> bool:
    """A version of vLLM that may be like those that were examined."""
    try:
        number = Version(version.partition("+")[0])
    except InvalidVersion:
        return False
    return str(number) == version and len(number.release) == 3 and number >= OLDEST
