"""A default that is not the document's is broken in the first step, and only there."""

import pytest

from schedproof.model.observation import Step
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.defaults import default_is

STEP = Step(kind="idle", scheduled={})
RULE = default_is("interleave", True)


@pytest.mark.parametrize(
    ("said", "step", "broken", "exercised"),
    [
        ({"interleave": True}, 0, False, True),
        ({"interleave": False}, 0, True, True),
        ({"interleave": False}, 1, False, False),
        ({"chunk_size": 64}, 0, False, False),
        ({}, 0, False, False),
    ],
)
def test_a_default_is_judged_once_and_only_where_the_target_says_it(said, step, broken, exercised):
    history = RunHistory({}, "sound", "spyre", defaults=said, step=step)
    assert (RULE.broken(history, STEP) is not None) == broken
    assert RULE.exercised(history, STEP) == exercised


def test_the_message_has_both_values():
    message = RULE.broken(RunHistory({}, "sound", "spyre", defaults={"interleave": False}), STEP)
    assert message == ("interleave is False where a configuration does not give it, expected True")
