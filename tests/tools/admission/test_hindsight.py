"""The best schedule in hindsight is no worse than any that a sound check makes."""

import random

import pytest

from schedproof.tools.admission.hindsight import SMALL, admitted, best, drawn


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_check_does_better_than_the_best_and_a_free_order_is_no_worse(count):
    chance = random.Random(count)
    for _ in range(40):
        asked = drawn(count, chance)
        free, kept = (best(asked, "steps", in_order=order) for order in (False, True))
        waits = best(asked, "waits", in_order=False)
        assert free <= kept
        for check in ("exact", "2.1.2", "common_base"):
            cost = admitted(asked, check)
            assert kept <= cost.steps
            assert waits <= cost.waits


def test_what_fits_together_is_best_at_once():
    # Two prefill steps and a decode step between; then the longer one's last two decode steps.
    assert best([(1, 3), (1, 3)], "steps", in_order=True) == 5
    assert admitted([(1, 3), (1, 3)], "exact").steps == 5


def test_a_step_beyond_the_limit_is_no_schedule():
    # Three of 10 tokens would be 30 > 24: the third waits, and seven steps more are needed.
    assert SMALL.max_batch_tkv == 24
    alone = best([(2, 9)], "steps", in_order=True)
    assert best([(2, 9)] * 2, "steps", in_order=True) == alone + 2
    assert best([(2, 9)] * 3, "steps", in_order=True) > alone + 4
