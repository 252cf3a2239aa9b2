"""Nets: loads that the door lets in, and catches that are real."""

import numpy as np
import pytest

from schedproof.model.spyre.lanes import (
    ARRIVAL,
    END,
    MAX_TOKENS,
    PROMPT,
    LaneResult,
    asked_by,
    read_rules,
)
from schedproof.properties.spyre.workloads import (
    caught,
    draw_config,
    draw_loads,
    scenario_of,
    smallest,
)


@pytest.mark.parametrize("seed", range(30))
def test_every_load_is_one_that_the_model_takes(seed):
    draw = np.random.default_rng(seed)
    config = draw_config(draw)
    rules = read_rules("sound", config)
    asked = draw_loads(draw, rules, 8, 50)
    scenarios = [scenario_of(asked, place, "sound", config) for place in range(50)]
    assert {len(one.requests) for one in scenarios} >= {2, 8}
    # Read as requests, which is checked, and as lanes again, they are what was drawn.
    assert np.array_equal(asked_by(rules, [one.requests for one in scenarios]), asked)


def test_loads_arrive_in_order_and_some_stop_early():
    draw = np.random.default_rng(0)
    asked = draw_loads(draw, read_rules("sound", {}), 5, 400)
    there = asked[PROMPT] > 0
    late = np.diff(asked[ARRIVAL], axis=0)[there[1:]]
    assert late.min() >= 0 < late.max()
    early = asked[END] - asked[PROMPT] + 1 < asked[MAX_TOKENS]
    assert 0 < np.count_nonzero(early[there]) < np.count_nonzero(there)


def test_a_lane_beyond_the_limit_or_idle_is_caught_and_the_smallest_of_them_kept():
    rules = read_rules("sound", {"max_model_len": 1000, "max_batch_tkv": 1000})
    reported = LaneResult(np.array([9, 9, 9]), np.array([1000, 1001, 999]), np.array([0, 0, 1]))
    assert caught("SPY-R07", rules, reported).tolist() == [False, True, False]
    assert caught("SPY-R35", rules, reported).tolist() == [False, False, True]
    asked = np.zeros((4, 3, 3), np.int64)
    asked[PROMPT] = [[5, 9, 3], [5, 9, 4], [1, 0, 0]]
    assert smallest(asked, np.array([True, True, True])) == 2
    assert smallest(asked, np.array([True, True, False])) == 1
