"""Generated configurations and requests stay inside what every target accepts."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.spyre.config import read_config
from schedproof.model.spyre.model import make_model
from schedproof.properties.ledger import Ledger
from schedproof.properties.spyre import strategies

SCALES = ("small", "tight")


def _ledger(config, computed):
    ledger = Ledger(config)
    for index, tokens in enumerate(computed):
        name = f"r{index}"
        request = Request(id=name, arrival=0, prompt=((name, 1),), max_tokens=tokens + 5)
        ledger.accept(request)
        ledger.observe(Step(kind="prefill", scheduled={name: tokens}))
    return ledger


def _fits(config, shape):
    padded = ceil(shape.prompt / config["block_size"]) * config["block_size"]
    assert 1 <= shape.output_len <= shape.max_tokens
    assert shape.prompt >= 1
    # The door rule of the releases, the strictest that a target is known to have.
    assert padded + shape.max_tokens <= config["max_model_len"]
    assert shape.prompt + shape.max_tokens - 1 <= config["max_batch_tkv"]


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_every_configuration_can_be_modelled(scale, data):
    config = data.draw(strategies.configs(scale))
    read_config(config, "sound")
    make_model("sound", config)
    make_model("2.1.2", config)


@given(data=st.data())
def test_tight_configurations_keep_the_published_block_size(data):
    config = data.draw(strategies.configs("tight"))
    assert config["block_size"] == 64
    assert config["max_num_seqs"] <= config["chunk_size"]


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_requests_fit_the_model_and_the_limit(scale, data):
    config = data.draw(strategies.configs(scale))
    _fits(config, data.draw(strategies.shapes(config)))


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_late_requests_fit_the_model_and_the_limit(scale, data):
    config = data.draw(strategies.configs(scale))
    longest = config["max_model_len"] - 1
    computed = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=4))
    _fits(config, data.draw(strategies.beside_the_batch(config, _ledger(config, computed))))


def test_steps_to_border_fill_the_block_that_is_nearest_to_full():
    config = {"block_size": 64, "chunk_size": 128}
    assert strategies.steps_to_border(config, _ledger(config, [1, 62, 130])) == 2
    assert strategies.steps_to_border(config, _ledger(config, [128])) == 0
    assert strategies.steps_to_border(config, _ledger(config, [])) == 0
