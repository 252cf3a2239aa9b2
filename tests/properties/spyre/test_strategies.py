"""Generated configurations and requests stay inside what every target accepts."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.spyre.config import REVISIONS
from schedproof.model.systems import full_config
from schedproof.properties.spyre import strategies as spyre
from schedproof.tests.properties.drawn import SCALES, found, history

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


@pytest.mark.parametrize("revision", ["sound", "documented", "2.5.2"])
@pytest.mark.parametrize("scale", SCALES)
def test_pools_are_tried_that_hold_one_request_and_not_a_full_batch(scale, revision):
    def is_small(config):
        longest = ceil(config["max_model_len"] / config["block_size"])
        return config["num_blocks"] == longest and config["max_num_seqs"] > 1

    found(spyre.configs(scale, revision), is_small)


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
