"""What all targets that host a release do alike: their own start-up checks."""

import pytest

from schedproof.gate.targets.protocol_checks import RefusedError
from schedproof.gate.targets.release_adapter import (
    BEYOND_START_UP,
    Hosted,
    HostedTarget,
    StartUp,
    checked_start,
)


def refuses():
    raise RefusedError("too few blocks")


def test_a_check_that_passes_is_named():
    assert checked_start("release 1 check", lambda: None) == StartUp(True, "release 1 check")


def test_what_the_release_does_not_start_with_is_refused(monkeypatch):
    monkeypatch.delenv(BEYOND_START_UP, raising=False)
    with pytest.raises(RefusedError, match="too few blocks"):
        checked_start("release 1 check", refuses)


def test_beyond_start_up_it_is_taken_and_said(monkeypatch):
    monkeypatch.setenv(BEYOND_START_UP, "1")
    assert checked_start("release 1 check", refuses) == StartUp(False, "too few blocks")


def test_the_overridden_methods_of_a_class_are_in_the_reply_to_start():
    class Stub(HostedTarget):
        def open(self, system, config):
            return Hosted(None, "Mine", "1", [], overrides=config["overrides"])

    assert Stub().start("vllm", "", {"overrides": [("mine.py", 7)]})["overrides"] == [
        ("mine.py", 7)
    ]
    assert "overrides" not in Stub().start("vllm", "", {"overrides": ()})
