"""What is measured of the models is eight requests that decode."""

import pytest

from schedproof.tools.benchmarks import models
from schedproof.tools.benchmarks.models import REQUESTS, SUBJECTS, running, stepping


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_eight_requests_decode_in_every_step(subject):
    model, state = running(subject)
    for _ in range(3):
        state, seen = model.step(state)
        assert seen["kind"] == "decode"
        assert len(seen["scheduled"]) == REQUESTS
    assert stepping(subject, 5)() == 5


def test_nobody_ends_while_it_is_measured():
    assert 20 * REQUESTS + 1_500 < models.TOKENS


def test_every_model_has_a_row_beside_the_first(monkeypatch):
    monkeypatch.setattr(models, "in_turns", lambda works, rounds: [100.0, *[50.0] * 5])
    found = list(models.rows(quick=True))
    assert [row.what for row in found] == [subject.name for subject in SUBJECTS]
    assert [row.ratio for row in found] == [1.0, *[0.5] * 5]
