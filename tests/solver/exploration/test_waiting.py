"""Steps that are wasted are counted, and no others."""

import pytest

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.history.run_history import RunHistory
from schedproof.solver.exploration.waiting import WASTE_IN_LINE, Wait, never_ends, waits_too_long

ORDER = {"r0": 0, "r1": 1, "r2": 2}
IDLE = Step(kind="idle", scheduled={})


@pytest.fixture
def history():
    """r0 decodes; r1 and r2 wait."""
    history = RunHistory(full_config("spyre", "sound", {}), "sound", "spyre")
    for name in ORDER:
        history.accept(Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=4))
    history.observe(Step(kind="prefill", scheduled={"r0": 3}, emitted={"r0": 1}))
    return history


def test_a_step_that_computes_something_for_who_came_before_is_not_wasted(history):
    step = Step(kind="decode", scheduled={"r0": 1})
    assert Wait("r1", 2, 1).after(history, step, ORDER) == Wait("r1", 2, 1)


def test_an_idle_step_is_wasted_for_all(history):
    assert Wait("r1", 2, 1).after(history, IDLE, ORDER) == Wait("r1", 3, 2)


def test_a_step_for_who_came_later_is_wasted_for_the_first_in_line(history):
    step = Step(kind="prefill", scheduled={"r2": 3})
    assert Wait("r1", 0, 0).after(history, step, ORDER) == Wait("r1", 1, 0)


def test_who_is_scheduled_waits_no_longer(history):
    step = Step(kind="prefill", scheduled={"r1": 3})
    assert Wait("r1", 3, 1).after(history, step, ORDER) == Wait(None, 0, 1)


def test_another_head_begins_anew(history):
    assert Wait("r0", 3, 0).after(history, IDLE, ORDER) == Wait("r1", 1, 1)


def test_nothing_is_wasted_on_nobody():
    history = RunHistory(full_config("spyre", "sound", {}), "sound", "spyre")
    assert Wait().after(history, IDLE, {}) == Wait()


def test_the_bounds_of_waiting():
    assert waits_too_long(Wait("r1", WASTE_IN_LINE - 1, 0)) is None
    assert "r1" in waits_too_long(Wait("r1", WASTE_IN_LINE, 0))
    assert never_ends(Wait(None, 0, 7), 3) is None
    assert "8 steps" in never_ends(Wait(None, 0, 8), 3)
