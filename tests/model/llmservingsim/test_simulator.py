"""When the simulator is through, and when it jumps ahead."""

import pytest

from schedproof.model.llmservingsim.simulator import is_over, next_time
from schedproof.model.llmservingsim.state import Batch, Decision, State

NOBODY = Decision(State(), None)
SOMEBODY = Decision(State(), Batch(0, (("a", 1),)))


@pytest.mark.parametrize(
    ("decisions", "pending", "deferred", "over"),
    [
        ([NOBODY, NOBODY], False, False, True),
        ([NOBODY, SOMEBODY], False, False, False),
        ([NOBODY], True, False, False),
        ([NOBODY], False, True, False),
        ([], False, False, True),
    ],
)
def test_it_is_over_when_nobody_goes_nothing_comes_and_nothing_is_deferred(
    decisions, pending, deferred, over
):
    assert is_over(decisions, pending, deferred) is over


def test_with_deferred_sessions_alone_the_clock_jumps_to_the_first_that_is_due():
    assert next_time(10, [NOBODY], [50, 30]) == 30
    assert next_time(40, [NOBODY], [30]) == 40


def test_the_clock_does_not_jump_past_work():
    assert next_time(10, [NOBODY, SOMEBODY], [30]) == 10
    assert next_time(10, [NOBODY], [30], pending=True) == 10
    assert next_time(10, [NOBODY], []) == 10
