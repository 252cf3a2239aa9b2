"""Judging a run twice as long takes twice the work, counted in comparisons of contents."""

import sys

import pytest

from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.session import Session
from schedproof.properties.history import content
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

BESIDE = 6  # requests that are unfinished at once


def comparisons(monkeypatch, system, requests):
    """Return how often two contents are compared while so many requests come and go."""
    count = 0
    compare = content.common_prefix_len

    def counted(first, other):
        nonlocal count
        count += 1
        return compare(first, other)

    for module in [module for name, module in sys.modules.items() if "properties" in name]:
        if getattr(module, "common_prefix_len", None) is compare:
            monkeypatch.setattr(module, "common_prefix_len", counted)
    revision = SYSTEMS[system].revisions[-1]
    config = full_config(system, revision, {})
    session = Session(ModelTarget(), system, revision, config, load(system))
    sent = 0
    while sent < requests or session.unfinished:
        while sent < requests and len(session.monitor.history.live) < BESIDE:
            prompt = (("system", 64), (f"r{sent}", 20))
            assert not session.add(Request(id=f"r{sent}", arrival=0, prompt=prompt, max_tokens=4))
            sent += 1
        assert not session.step()
    monkeypatch.undo()
    return count


@pytest.mark.parametrize("system", [*SYSTEMS])
def test_the_comparisons_grow_as_the_requests_do(monkeypatch, system):
    assert comparisons(monkeypatch, system, 80) < 2.3 * comparisons(monkeypatch, system, 40) + 100
