"""Z3 uses the limit to the last token."""

import pytest

from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.spyre.at_limit import using
from schedproof.solver.spyre.volumetric import Setting
from schedproof.spec.catalogue import load

SETTING = Setting("common_base", 0, block=4, chunk=8, limit=96, max_model_len=32)


@pytest.mark.parametrize("volume", [96, 93])
def test_some_step_of_the_model_has_exactly_the_volume_asked_for(volume: int) -> None:
    scenario = using(SETTING, volume, "sound", 60.0)
    assert scenario is not None
    steps = []
    outcome = replay(ModelTarget(), scenario, load("spyre"), lambda _, step: steps.append(step))
    # Which of the solutions Z3 gives is its own choice: another step may well have more.
    assert volume in [len(one.scheduled) * (one.tkv or 0) for one in steps if one.kind == "decode"]
    assert outcome.finished
    assert outcome.broken == []


def test_a_volume_that_no_batch_has_is_not_found() -> None:
    assert using(SETTING, 89, "sound", 60.0) is None  # a prime number, beyond one request's tkv
