"""Which releases there are to judge."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets import releases
from schedproof.gate.targets.releases import releases_of
from schedproof.gate.targets.supported_releases import ReleaseError, packages

from .wheel_files import make_wheel


def answers(monkeypatch, code, out, err=""):
    done = SimpleNamespace(returncode=code, stdout=out, stderr=err)
    fake = SimpleNamespace(run=lambda *_, **__: done)
    monkeypatch.setattr(releases, "subprocess", fake)


def test_of_vllm_the_index_is_asked_and_what_cannot_be_judged_left_out(monkeypatch):
    answers(
        monkeypatch, 0, "vllm (0.33.0)\nAvailable versions: 0.33.0, 0.20.0, 0.9.2, 0.8.5.post1\n"
    )
    assert releases_of("vllm") == ["vllm==0.20.0", "vllm==0.33.0"]


def test_of_others_those_that_are_supported(monkeypatch):
    monkeypatch.setattr(releases, "subprocess", None)
    there = releases_of("sendnn-inference")
    assert there[0] == "sendnn-inference==2.0.0"
    assert there[-1] == "sendnn-inference==2.6.3"


@pytest.mark.parametrize("code", [0, 1])
def test_without_an_answer_the_error_says_what_to_name(monkeypatch, code):
    answers(monkeypatch, code, "", "ERROR: NewConnectionError")
    with pytest.raises(ReleaseError, match=r"cannot be reached; .*name releases as vllm==VERSION"):
        releases_of("vllm")


def test_an_unknown_name_is_an_error():
    with pytest.raises(ReleaseError, match="'triton' is not a release; valid: "):
        releases_of("triton")


def test_each_supported_release_has_the_digests_of_its_wheels_and_each_package_its_own():
    known = packages()
    supported = [f"{name}=={version}" for name in known for version in known[name].versions]
    bases = [f"vllm=={base}" for package in known.values() for base in package.versions.values()]
    listed = releases.published_digests()
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
    with pytest.raises(ReleaseError, match="would be outside the folder"):
        releases.unpack(wheel, tmp_path / "tree" / "inner")
    assert not list(tmp_path.rglob("outside.py"))
    assert not wheel.exists()


def test_a_damaged_wheel_is_said_to_be_and_forgotten(tmp_path):
    wheel = make_wheel(tmp_path / "bad-1.0-py3-none-any.whl", {"good.py": "text" * 100})
    wheel.write_bytes(wheel.read_bytes().replace(b"texttext", b"testtest"))
    with pytest.raises(ReleaseError, match=r"cannot unpack bad-1\.0-py3-none-any\.whl: .*CRC"):
        releases.unpack(wheel, tmp_path / "tree")
    assert not wheel.exists()
