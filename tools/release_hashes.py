"""Which wheels, with which digests, may `schedproof gate NAME==VERSION` install?

Queries the package index. Writes `gate/targets/wheels.txt` (the releases that can be judged) and
the digests in `gate/targets/packages.txt`, whose versions stay the same. `make lock` runs this
tool; it takes a minute.
"""

import json
import re
import urllib.request
from pathlib import Path

from schedproof.gate.targets.releases import _packages, releases_of
from schedproof.gate.targets.supported_releases import packages as known_packages

TARGETS = Path(__file__).resolve().parents[1] / "gate" / "targets"
INDEX = "https://pypi.org/simple/{}/"
JSON = "application/vnd.pypi.simple.v1+json"
# Wheels for the Python versions and machines that schedproof supports.
PYTHONS = re.compile(r"-(py3|py2\.py3|cp311|cp312|cp313|cp3\d+-abi3)[-.]")
MACHINES = re.compile(r"-any\.whl$|manylinux.*_(x86_64|aarch64)\.whl$|macosx")


def files(name: str) -> dict[str, str]:
    """Return the files of a package on the index, with the SHA-256 of each."""
    request = urllib.request.Request(INDEX.format(name), headers={"Accept": JSON})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)["files"]
    return {file["filename"]: file["hashes"]["sha256"] for file in found}


def of_version(all_files: dict[str, str], version: str, *, sources: bool) -> list[str]:
    """Return the digests of a version's wheels. With `sources`, add the digest of its source
    archive."""
    wheels = [
        digest
        for file, digest in all_files.items()
        if f"-{version}-" in file and file.endswith(".whl")
        if PYTHONS.search(file) and MACHINES.search(file)
    ]
    archives = [digest for file, digest in all_files.items() if file.endswith(f"-{version}.tar.gz")]
    return sorted(wheels + (archives if sources else []))


def lines(name: str, version: str, digests: list[str]) -> str:
    """Return the lines of an entry in pip's lock file."""
    assert digests, (name, version)
    return " \\\n    ".join(
        [f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in digests)]
    )


def main() -> None:
    listed = {name: [*package.versions] for name, package in known_packages().items()}
    listed["vllm"] = [release.partition("==")[2] for release in releases_of("vllm")]
    wheels = [
        lines(name, version, of_version(published, version, sources=False))
        for name, versions in listed.items()
        for published in [files(name)]
        for version in versions
    ]
    title = "# Wheels of the releases that can be judged (make lock)."
    (TARGETS / "wheels.txt").write_text("\n".join([title, *wheels, ""]), encoding="utf-8")
    pins = [pin.partition("==") for pin in _packages()]
    packages = [
        lines(name, version, of_version(files(name), version, sources=True))
        for name, _, version in pins
    ]
    place = TARGETS / "packages.txt"
    title = place.read_text(encoding="utf-8").splitlines()[0]
    place.write_text("\n".join([title, *packages, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
