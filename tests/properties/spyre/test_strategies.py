"""Generated configurations and requests stay inside what every target accepts."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre.config import REVISIONS
from schedproof.model.spyre.lanes import (
    ARRIVAL,
    END,
    MAX_TOKENS,
    PROMPT,
    LaneResult,
    read_rules,
    requests_table,
)
from schedproof.model.systems import full_config
from schedproof.properties.spyre import FEWER_BLOCKS
from schedproof.properties.spyre import strategies as spyre
from schedproof.properties.spyre.workloads import (
    caught,
    draw_config,
    draw_loads,
    scenario_of,
    smallest,
)
from schedproof.tests.properties.drawn import SCALES, find_example, history

revisions = st.sampled_from(REVISIONS)


@pytest.mark.parametrize("scale", ["short", "tight"])
@given(revision=revisions, data=st.data())
def test_short_and_tight_configurations_keep_the_published_block_size(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    assert config["block_size"] == 64
    assert config["max_num_seqs"] <= config["chunk_size"]


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_options_that_a_revision_does_not_have_stay_at_their_defaults(scale, data):
    for revision in ("sound", "documented", "2.1.2"):
        config = data.draw(spyre.configs(scale, revision))
        assert (config["pausing"], config["long_output_priority"]) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["sound", "documented", "2.5.2"])
@pytest.mark.parametrize("scale", SCALES)
def test_pools_are_tried_that_hold_one_request_and_not_a_full_batch(scale, revision):
    def is_small(config):
        longest = ceil(config["max_model_len"] / config["block_size"])
        return config["num_blocks"] == longest and config["max_num_seqs"] > 1

    find_example(spyre.configs(scale, revision), is_small)


@pytest.mark.parametrize("scale", SCALES)
@given(revision=revisions, data=st.data())
def test_long_prompts_take_half_of_the_length_or_more(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    shape = data.draw(spyre.long_prompts(config))
    assert shape.prompt >= (config["max_model_len"] - config["block_size"]) // 2


def test_steps_to_border_fill_the_block_that_is_nearest_to_full():
    config = full_config("spyre", "sound", {"block_size": 64, "chunk_size": 128})
    assert spyre.steps_to_border(config, history("spyre", config, [1, 62, 130])) == 2
    assert spyre.steps_to_border(config, history("spyre", config, [128])) == 0
    assert spyre.steps_to_border(config, history("spyre", config, [])) == 0


@pytest.mark.parametrize("seed", range(30))
def test_every_load_is_one_that_the_model_takes(seed):
    draw = np.random.default_rng(seed)
    config = draw_config(draw)
    rules = read_rules("sound", config)
    table = draw_loads(draw, rules, 8, 50)
    scenarios = [scenario_of(table, place, "sound", config) for place in range(50)]
    assert {len(scenario.requests) for scenario in scenarios} >= {2, 8}
    # Read as requests, which is checked, and as lanes again, they are what was drawn.
    assert np.array_equal(
        requests_table(rules, [scenario.requests for scenario in scenarios]), table
    )


def test_loads_arrive_in_order_and_some_stop_early():
    draw = np.random.default_rng(0)
    table = draw_loads(draw, read_rules("sound", {}), 5, 400)
    present = table[PROMPT] > 0
    late = np.diff(table[ARRIVAL], axis=0)[present[1:]]
    assert late.min() >= 0 < late.max()
    early = table[END] - table[PROMPT] + 1 < table[MAX_TOKENS]
    assert 0 < np.count_nonzero(early[present]) < np.count_nonzero(present)


def test_a_lane_beyond_the_limit_or_idle_is_caught_and_the_smallest_of_them_kept():
    rules = read_rules("sound", {"max_model_len": 1000, "max_batch_tkv": 1000})
    reported = LaneResult(np.array([9, 9, 9]), np.array([1000, 1001, 999]), np.array([0, 0, 1]))
    assert caught("SPY-R07", rules, reported).tolist() == [False, True, False]
    assert caught("SPY-R35", rules, reported).tolist() == [False, False, True]
    table = np.zeros((4, 3, 3), np.int64)
    table[PROMPT] = [[5, 9, 3], [5, 9, 4], [1, 0, 0]]
    assert smallest(table, np.array([True, True, True])) == 2
    assert smallest(table, np.array([True, True, False])) == 1


@given(data=st.data())
def test_no_pool_is_drawn_that_a_server_does_not_start_with_if_the_target_refuses_it(data):
    config = data.draw(spyre.configs("tight", "2.5.2", frozenset({FEWER_BLOCKS})))
    if config["num_blocks"] is not None:
        batch = config["max_num_seqs"]
        rounded = (config["num_blocks"] + 1) // batch * batch
        full = batch * (config["max_model_len"] // 64)
        assert rounded >= min(full, config["max_batch_tkv"] // 64) + 1
