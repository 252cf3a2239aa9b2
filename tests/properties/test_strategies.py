"""The strategies of every system: what they draw is accepted, and brings about what is worth
checking."""

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.observation import Step
from schedproof.model.scenario import Request, check_requests
from schedproof.model.systems import full_config, make_model, reference
from schedproof.model.vllm.config import SAYING_NOTHING
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.llmservingsim import strategies as llmservingsim
from schedproof.properties.nano_vllm import strategies as nano_vllm
from schedproof.properties.spyre import strategies as spyre
from schedproof.properties.vllm import strategies as vllm
from schedproof.spec.systems import SYSTEMS

from .drawn import SCALES, find_example, history, request_of


def accepted(system, revision, config, shape):
    request = request_of("fits", (("fits", shape.prompt),), shape)
    assert make_model(system, revision, config).refusal(request) is None
    check_requests((request,))


def accepted_by_the_releases(system, revision, config, shape):
    """By the rule of the releases at their door, the strictest that a target is known to have."""
    block = config["block_size"]
    assert 1 <= shape.output_len <= shape.max_tokens
    assert shape.prompt >= 1
    assert ceil(shape.prompt / block) * block + shape.max_tokens <= config["max_model_len"]
    assert shape.prompt + shape.max_tokens - 1 <= config["max_batch_tkv"]
    if config["num_blocks"] is not None:
        assert ceil((shape.prompt + shape.max_tokens) / block) <= config["num_blocks"]


class StrategyCase(NamedTuple):
    """A system, a small configuration, and what is tried of contents in it: the tokens of the
    earlier prompt and of the new one, and the contents."""

    strategies: Any
    config: dict[str, Any]
    earlier: int
    prompt: int
    contents: tuple[Any, ...]
    cache: str | None
    fits: Callable[..., None] = accepted


BUDGET = (
    *((("r1", 18),), (("r0", 14),), (("r0", 12),), (("r0", 4), ("r1", 14))),
    *((("r0", 9), ("r1", 9)), (("r0", 14), ("r1", 4))),
    *((("r0", 14), ("out:r0", 4)), (("r0", 14), ("out:r0", 5))),
)
CHUNKS = (
    *((("r1", 22),), (("r0", 18),), (("r0", 16),), (("r0", 4), ("r1", 18))),
    *((("r0", 8), ("r1", 14)), (("r0", 18), ("r1", 4))),
    *((("r0", 18), ("out:r0", 2), ("r1", 2)), (("r0", 18), ("out:r0", 4))),
    (("r0", 18), ("out:r0", 5)),
)
SMALL = {"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 9}
CASES = {
    "spyre": StrategyCase(
        spyre,
        {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "prefix_caching": True},
        *(18, 22, CHUNKS, "prefix_caching", accepted_by_the_releases),
    ),
    "vllm": StrategyCase(
        vllm, SMALL | {"max_model_len": 24}, 14, 18, BUDGET, "enable_prefix_caching"
    ),
    "nano_vllm": StrategyCase(nano_vllm, SMALL, 14, 18, BUDGET, None),
    "llmservingsim": StrategyCase(
        llmservingsim, SMALL, 14, 18, BUDGET[:4] + BUDGET[6:], "enable_prefix_caching"
    ),
}
each_system = pytest.mark.parametrize("system", CASES)
each_scale = pytest.mark.parametrize("scale", SCALES)


def earlier(system, **changes):
    tokens = CASES[system].earlier
    values = {"prompt": (("r0", tokens),), "max_tokens": 6, "output_len": 5} | changes
    return Request(**{"id": "r0", "arrival": 0} | values)


def small(system, **changes):
    return full_config(system, SYSTEMS[system].revisions[0], CASES[system].config | changes)


def drawn(system, scale, data):
    revision = data.draw(st.sampled_from(SYSTEMS[system].revisions))
    return revision, data.draw(CASES[system].strategies.configs(scale, revision))


@pytest.mark.slow
@each_scale
@each_system
@given(data=st.data())
def test_every_configuration_can_be_modelled_and_names_every_key(system, scale, data):
    revision, config = drawn(system, scale, data)
    make_model(system, revision, config)
    read = reference(system).read_config(config, revision)
    unsaid = SAYING_NOTHING if system == "vllm" else ()
    own = [key for key in read.__struct_fields__ if key not in unsaid]
    assert [key for key in config if key not in unsaid] == own


@pytest.mark.slow
@each_scale
@each_system
@given(data=st.data())
def test_requests_fit(system, scale, data):
    revision, config = drawn(system, scale, data)
    strategies, fits = CASES[system].strategies, CASES[system].fits
    shape = data.draw(strategies.shapes(config))
    fits(system, revision, config, shape)
    long = data.draw(strategies.long_prompts(config))
    fits(system, revision, config, long)
    book = RunHistory(config, revision, system)
    book.accept(request_of("long", (("long", max(long.prompt, 2)),), long))
    book.observe(Step(kind="prefill", scheduled={"long": 1}))
    fits(system, revision, config, data.draw(strategies.beside_a_prefill(config, book)))


@pytest.mark.slow
@each_scale
@each_system
@given(data=st.data())
def test_late_requests_fit(system, scale, data):
    revision, config = drawn(system, scale, data)
    pool = config["num_blocks"] or 9
    longest = config.get("max_model_len", config["block_size"] * pool + 1) - 1
    computed = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=4))
    free = data.draw(st.none() | st.integers(0, pool))
    book = history(system, config, computed, free, revision)
    strategies = CASES[system].strategies
    late = data.draw(strategies.beside_the_batch(config, book))
    CASES[system].fits(system, revision, config, late)
    steps = strategies.steps_to_border(config, book)
    assert steps >= 0
    assert steps < config["block_size"] or system != "nano_vllm"


@pytest.mark.slow
@each_scale
@each_system
@given(data=st.data())
def test_requests_with_prompts_that_came_before_fit_as_well(system, scale, data):
    revision, config = drawn(system, scale, data)
    strategies, fits = CASES[system].strategies, CASES[system].fits
    requests = []
    for index in range(data.draw(st.integers(1, 4))):
        name = f"r{index}"
        shape = data.draw(strategies.shapes(config))
        content = data.draw(strategies.contents(config, requests, name, shape.prompt))
        fitted = strategies.fitted(config, content, shape)
        assert fitted.prompt == sum(tokens for _, tokens in content)
        assert fitted.priority == shape.priority
        fits(system, revision, config, fitted)
        fits(system, revision, config, strategies.fitted(config, content, None))
        abort_at = data.draw(st.none() | st.just(3))
        requests.append(request_of(name, content, fitted, abort_at=abort_at))
    check_requests(tuple(requests))


@each_system
@given(scale=st.sampled_from(SCALES), data=st.data())
def test_a_prompt_is_its_own_or_without_a_cache_an_earlier_one(system, scale, data):
    _, config = drawn(system, scale, data)
    contents, cache = CASES[system].strategies.contents, CASES[system].cache
    on, off = ({cache: True}, {cache: False}) if cache else ({}, {})
    assert data.draw(contents(config | on, [], "r1", 7)) == (("r1", 7),)
    if system in ("spyre", "vllm"):
        uncached = data.draw(contents(config | off, [earlier(system)], "r1", 7))
        equal = [earlier(system).prompt] if system == "vllm" else []
        assert uncached in [(("r1", 7),), *equal]


@pytest.mark.parametrize(
    ("system", "content"),
    [(system, content) for system in CASES for content in CASES[system].contents],
)
def test_a_prompt_repeats_an_earlier_one_up_to_where_caching_decides(system, content):
    case = CASES[system]
    drawn = case.strategies.contents(small(system), [earlier(system)], "r1", case.prompt)
    assert find_example(drawn, lambda example: example == content) == content


@each_system
def test_a_prompt_begins_again_behind_full_blocks_of_another(system):
    case, other = CASES[system], earlier(system, id="other", prompt=(("other", 9),))
    earlier_ones = [earlier(system), other]
    drawn = case.strategies.contents(small(system), earlier_ones, "r1", case.prompt)
    find_example(drawn, lambda content: content[:2] == (("other", 8), ("r0", case.prompt - 8)))


@each_system
def test_what_an_aborted_request_said_comes_again(system):
    case = CASES[system]
    gone = earlier(system, id="gone", prompt=(("gone", 9),), output_len=None, abort_at=2)
    drawn = case.strategies.contents(small(system), [gone, earlier(system)], "r1", case.prompt)
    find_example(drawn, lambda content: content[0][0] == "gone")


@each_system
def test_a_configuration_caches_as_its_option_says(system):
    case = CASES[system]
    assert case.strategies.caches(small(system))
    if case.cache:
        assert not case.strategies.caches(small(system, **{case.cache: False}))


TRIED = {
    "vllm": (
        *({"enable_chunked_prefill": False}, {"enable_prefix_caching": False}),
        *({"policy": "priority"}, {"policy": "fcfs"}, {"reserve_full_isl": False}),
        *({"long_prefill_token_threshold": 0}, {"num_blocks": None}),
        *({"max_num_seqs": 1}, {"max_num_seqs": 6}),
    ),
    "nano_vllm": tuple({"max_num_seqs": slots} for slots in range(1, 7)),
    "llmservingsim": (
        *({"enable_chunked_prefill": False}, {"enable_prefix_caching": False}),
        *({"max_num_seqs": 0}, {"max_num_seqs": 1}, {"num_blocks": None}),
        {"long_prefill_token_threshold": 0},
    ),
}
ALL = ({"interleave": False}, {"prefix_caching": True})
OF_2_5_2 = ({"pausing": False}, {"long_output_priority": True})


@pytest.mark.slow
@each_scale
@pytest.mark.parametrize(
    ("system", "revision", "tried"),
    [
        *(
            (system, revision, tried)
            for system in TRIED
            for revision in SYSTEMS[system].revisions
            for tried in TRIED[system]
        ),
        *(("spyre", revision, tried) for revision in SYSTEMS["spyre"].revisions for tried in ALL),
        *(("spyre", "2.5.2", tried) for tried in OF_2_5_2),
    ],
    ids=str,
)
def test_every_option_that_a_revision_has_is_tried(system, revision, tried, scale):
    configs = CASES[system].strategies.configs(scale, revision)
    find_example(configs, lambda config: tried.items() <= config.items())
