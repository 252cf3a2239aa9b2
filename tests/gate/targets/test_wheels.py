"""Wheels: what is unpacked is what was published, and stays so."""

import pytest

from schedproof.gate.targets import releases, wheels
from schedproof.gate.targets.supported_releases import ReleaseError, packages

from .wheel_files import make_wheel


def test_each_supported_release_has_the_digests_of_its_wheels_and_each_package_its_own():
    known = packages()
    supported = [f"{name}=={version}" for name in known for version in known[name].versions]
    bases = [f"vllm=={base}" for package in known.values() for base in package.versions.values()]
    listed = wheels.published()
    assert {*supported} <= {*listed}
    assert {*bases} <= {*listed}
    assert all(len(digest) == 64 for digests in listed.values() for digest in digests)
    text = releases.PACKAGES.read_text(encoding="utf-8").replace("\\\n", "")
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(pins) == len(releases._packages())
    assert all(" --hash=sha256:" in pin for pin in pins)


@pytest.mark.parametrize("name", ["../outside.py", "/outside.py", "a/../../outside.py", "a\\..\\b"])
def test_a_wheel_that_would_leave_its_folder_is_refused(name, tmp_path):
    wheel = make_wheel(tmp_path / "bad-1.0-py3-none-any.whl", {name: "", "good.py": ""})
    with pytest.raises(ReleaseError, match="would leave the folder"):
        wheels.unpack(wheel, tmp_path / "tree" / "inner")
    assert not list(tmp_path.rglob("outside.py"))
    assert not wheel.exists()


def test_a_damaged_wheel_is_said_to_be_and_forgotten(tmp_path):
    wheel = make_wheel(tmp_path / "bad-1.0-py3-none-any.whl", {"good.py": "text" * 100})
    wheel.write_bytes(wheel.read_bytes().replace(b"texttext", b"testtest"))
    with pytest.raises(ReleaseError, match=r"cannot unpack bad-1\.0-py3-none-any\.whl: .*CRC"):
        wheels.unpack(wheel, tmp_path / "tree")
    assert not wheel.exists()
