"""What a release is made of: locked dependencies, a container file, metadata for an index."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCKED = dict(
    re.findall(r"^([a-z0-9-]+)==([\w.]+) \\$", (ROOT / "requirements.lock").read_text(), re.M)
)


def test_every_dependency_is_locked_with_hashes_in_a_version_that_is_allowed():
    asked = [Requirement(line) for line in PROJECT["dependencies"]]
    for one in asked:
        assert one.specifier.contains(LOCKED[one.name]), one
    text = (ROOT / "requirements.lock").read_text()
    assert text.count("--hash=sha256:") >= len(LOCKED)
    assert "file:" not in text


def test_the_container_is_made_of_files_that_there_are():
    text = (ROOT / "Containerfile").read_text()
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists()
    assert 'ENTRYPOINT ["schedproof"]' in text
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    needed = ("spec", "model", "properties", "solver", "gate", "pyproject.toml", "README.md")
    assert not {*left_out} & {*needed}


def test_an_index_knows_what_it_is_and_what_it_needs():
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["readme"] == "README.md"
    versions = [one for one in PROJECT["classifiers"] if one.startswith("Programming Language")]
    assert f"Programming Language :: Python :: {PROJECT['requires-python'][2:]}" in versions
