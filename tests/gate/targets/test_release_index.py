"""Which releases there are to judge."""

from types import SimpleNamespace

import pytest

from schedproof.gate.targets import release_index
from schedproof.gate.targets.release_index import releases_of
from schedproof.gate.targets.supported_releases import ReleaseError


def answers(monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str = "") -> None:
    done = SimpleNamespace(returncode=code, stdout=out, stderr=err)
    fake = SimpleNamespace(run=lambda *_, **__: done)
    monkeypatch.setattr(release_index, "subprocess", fake)


def test_of_vllm_the_index_is_asked_and_what_cannot_be_judged_left_out(monkeypatch):
    answers(
        monkeypatch, 0, "vllm (0.33.0)\nAvailable versions: 0.33.0, 0.20.0, 0.9.2, 0.8.5.post1\n"
    )
    assert releases_of("vllm") == ["vllm==0.20.0", "vllm==0.33.0"]


def test_of_others_those_that_are_supported(monkeypatch):
    monkeypatch.setattr(release_index, "subprocess", None)
    there = releases_of("sendnn-inference")
    assert there[0] == "sendnn-inference==2.0.0"
    assert there[-1] == "sendnn-inference==2.6.3"


@pytest.mark.parametrize("code", [0, 1])
def test_without_an_answer_the_error_says_what_to_name(monkeypatch, code):
    answers(monkeypatch, code, "", "ERROR: NewConnectionError")
    with pytest.raises(ReleaseError, match=r"cannot be reached; .*name releases, vllm==VERSION"):
        releases_of("vllm")


def test_an_unknown_name_is_an_error():
    with pytest.raises(ReleaseError, match="'triton' is no name of a release; valid: "):
        releases_of("triton")
