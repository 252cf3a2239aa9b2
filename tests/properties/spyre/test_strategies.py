"""Generated configurations and requests stay inside what every target accepts."""

from math import ceil

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from schedproof.model.observation import Step
from schedproof.model.scenario import Request, check_requests
from schedproof.model.spyre.config import REVISIONS, read_config
from schedproof.model.spyre.model import make_model
from schedproof.model.systems import full_config
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.spyre import strategies as spyre

SCALES = ("small", "short", "tight")
revisions = st.sampled_from(REVISIONS)


def _history(config, computed):
    history = RunHistory(config, "sound", "spyre")
    for index, tokens in enumerate(computed):
        name = f"r{index}"
        request = Request(id=name, arrival=0, prompt=((name, 1),), max_tokens=tokens + 5)
        history.accept(request)
        history.observe(Step(kind="prefill", scheduled={name: tokens}))
    return history


def _fits(config, shape):
    padded = ceil(shape.prompt / config["block_size"]) * config["block_size"]
    assert 1 <= shape.output_len <= shape.max_tokens
    assert shape.prompt >= 1
    # The door rule of the releases, the strictest that a target is known to have.
    assert padded + shape.max_tokens <= config["max_model_len"]
    assert shape.prompt + shape.max_tokens - 1 <= config["max_batch_tkv"]
    if config["num_blocks"] is not None:
        tokens = shape.prompt + shape.max_tokens
        assert ceil(tokens / config["block_size"]) <= config["num_blocks"]


def _request(name, content, shape, **changes):
    return Request(
        id=name,
        arrival=0,
        prompt=content,
        max_tokens=shape.max_tokens,
        output_len=shape.output_len,
        **changes,
    )


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_every_configuration_can_be_modelled(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    assert list(config) == list(read_config(config, revision).__struct_fields__)
    make_model(revision, config)


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
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("key", "value", "among"),
    [
        ("interleave", False, REVISIONS),
        ("prefix_caching", True, REVISIONS),
        ("pausing", False, ("2.5.2",)),
        ("long_output_priority", True, ("2.5.2",)),
    ],
)
def test_every_option_that_a_revision_has_is_tried(scale, key, value, among):
    for revision in among:
        _found(spyre.configs(scale, revision), lambda config: config[key] is value)


@pytest.mark.parametrize("revision", ["sound", "documented", "2.5.2"])
@pytest.mark.parametrize("scale", SCALES)
def test_pools_are_tried_that_hold_one_request_and_not_a_full_batch(scale, revision):
    def is_small(config):
        longest = ceil(config["max_model_len"] / config["block_size"])
        return config["num_blocks"] == longest and config["max_num_seqs"] > 1

    _found(spyre.configs(scale, revision), is_small)


def _found(strategy, condition):
    """An example with the condition; `find` raises where there is none."""
    return find(strategy, condition, settings=settings(max_examples=2000, database=None))


@pytest.mark.parametrize("scale", SCALES)
@given(revision=revisions, data=st.data())
def test_requests_fit_the_model_and_the_limit(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    _fits(config, data.draw(spyre.shapes(config)))


@pytest.mark.parametrize("scale", SCALES)
@given(revision=revisions, data=st.data())
def test_late_requests_fit_the_model_and_the_limit(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    longest = config["max_model_len"] - 1
    computed = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=4))
    _fits(config, data.draw(spyre.beside_the_batch(config, _history(config, computed))))


@pytest.mark.parametrize("scale", SCALES)
@given(revision=revisions, data=st.data())
def test_long_prompts_fit_and_take_half_of_the_length_or_more(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    shape = data.draw(spyre.long_prompts(config))
    _fits(config, shape)
    assert shape.prompt >= (config["max_model_len"] - config["block_size"]) // 2


@pytest.mark.parametrize("scale", SCALES)
@given(revision=revisions, data=st.data())
def test_requests_with_prompts_that_came_before_fit_as_well(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    requests = []
    for index in range(data.draw(st.integers(1, 4))):
        name = f"r{index}"
        shape = data.draw(spyre.shapes(config))
        content = data.draw(spyre.contents(config, requests, name, shape.prompt))
        fitted = spyre.fitted(config, content, shape)
        assert fitted.prompt == sum(tokens for _, tokens in content)
        _fits(config, fitted)
        _fits(config, spyre.fitted(config, content, None))
        abort_at = data.draw(st.none() | st.just(3))
        requests.append(_request(name, content, fitted, abort_at=abort_at))
    check_requests(tuple(requests))


@given(scale=st.sampled_from(SCALES), revision=revisions, data=st.data())
def test_without_a_prefix_cache_or_somebody_earlier_a_prompt_is_its_own(scale, revision, data):
    config = data.draw(spyre.configs(scale, revision))
    earlier = [Request(id="r0", arrival=0, prompt=(("r0", 9),), max_tokens=3)]
    contents = spyre.contents
    alone = data.draw(contents(config | {"prefix_caching": True}, [], "r1", 7))
    uncached = data.draw(contents(config | {"prefix_caching": False}, earlier, "r1", 7))
    assert alone == uncached == (("r1", 7),)


CACHED = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "prefix_caching": True}
EARLIER = Request(id="r0", arrival=0, prompt=(("r0", 18),), max_tokens=6, output_len=5)


@pytest.mark.parametrize(
    "content",
    [
        (("r1", 22),),
        (("r0", 18),),
        (("r0", 16),),
        (("r0", 4), ("r1", 18)),
        (("r0", 8), ("r1", 14)),
        (("r0", 18), ("r1", 4)),
        (("r0", 18), ("out:r0", 2), ("r1", 2)),
        (("r0", 18), ("out:r0", 4)),
        (("r0", 18), ("out:r0", 5)),
    ],
    ids=[
        *("its own", "as it was", "its whole blocks", "a block", "a chunk"),
        *("all of the prompt", "a block of what was generated", "to the last token"),
        "with its answer",
    ],
)
def test_a_prompt_repeats_an_earlier_one_up_to_where_caching_decides(content):
    drawn = spyre.contents(CACHED, [EARLIER], "r1", 22)
    assert _found(drawn, lambda found: found == content) == content


def test_what_an_aborted_request_said_comes_again():
    gone = Request(id="gone", arrival=0, prompt=(("gone", 9),), max_tokens=6, abort_at=2)
    drawn = spyre.contents(CACHED, [gone, EARLIER], "r1", 22)
    _found(drawn, lambda content: content[0][0] == "gone")


def test_a_configuration_caches_as_its_option_says():
    assert spyre.caches(CACHED)
    assert not spyre.caches(CACHED | {"prefix_caching": False})


def test_steps_to_border_fill_the_block_that_is_nearest_to_full():
    config = full_config("spyre", "sound", {"block_size": 64, "chunk_size": 128})
    assert spyre.steps_to_border(config, _history(config, [1, 62, 130])) == 2
    assert spyre.steps_to_border(config, _history(config, [128])) == 0
    assert spyre.steps_to_border(config, _history(config, [])) == 0
