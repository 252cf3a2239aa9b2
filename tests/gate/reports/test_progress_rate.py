"""Progress in words: how fast, and how long still."""

import pytest

from schedproof.gate.judging.events import Progress
from schedproof.gate.reports.terminal import Pace


def words(*reported):
    """What is said at these seconds."""
    now = 0.0
    pace = Pace(lambda: now)
    said = []
    for now, event in reported:  # noqa: B007 (the clock reads it)
        said.append(pace.words(event))
    return said


def small(runs, steps=0, of=400):
    return Progress("hypothesis, small", runs, of, steps)


def test_a_rate_is_told_once_it_says_something():
    assert words((5.0, small(0)), (5.5, small(10, 90)), (7.0, small(100, 900))) == [
        "hypothesis, small: 0/400, 0 steps",
        "hypothesis, small: 10/400, 90 steps",
        "hypothesis, small: 100/400, 6 s left, 50 runs/s, 900 steps",
    ]


def test_each_engine_has_its_own_rate():
    tight = Progress("hypothesis, tight", 0, 400, 0)
    assert words((0.0, small(0)), (2.0, small(50)), (3.0, tight))[-1] == (
        "hypothesis, tight: 0/400, 0 steps"
    )


def test_shrinking_has_no_end_that_could_be_told():
    shrinking = Progress("hypothesis, small", 9, 400, 80, shrinking=True)
    assert words((0.0, small(0)), (4.0, shrinking))[-1] == (
        "hypothesis, small: 9/400, shrinking, 80 steps"
    )


def test_the_time_that_shrinking_took_does_not_slow_the_rate():
    shrinking = Progress("hypothesis, small", 20, 400, 80, shrinking=True)
    said = words((0.0, small(0)), (2.0, small(20)), (2.0, shrinking), (60.0, small(20)))
    assert said[-1] == "hypothesis, small: 20/400, 38 s left, 10 runs/s, 0 steps"


@pytest.mark.parametrize(
    ("of", "left"), [(2, "10 s"), (20, "3 min 10 s"), (2_000, "5 h 33 min"), (1, "0 s")]
)
def test_the_time_left_is_told_in_the_largest_unit(of, left):
    assert (
        f", {left} left, 0.1 runs/s, " in words((0.0, small(0, of=of)), (10.0, small(1, of=of)))[-1]
    )
