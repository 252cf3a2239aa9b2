"""Generated configurations and requests are accepted, and bring about what is worth checking."""

from math import ceil

import msgspec
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from schedproof.model import allocator
from schedproof.model.observation import Step
from schedproof.model.scenario import Request, check_requests
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import kv_cache, scheduler
from schedproof.model.vllm.config import read_config
from schedproof.model.vllm.model import make_model
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.properties.vllm import (
    AHEAD_IN_STAGES,
    ANY_LENGTH,
    V2_AHEAD_IN_STAGES,
    V2_WITHOUT_LOOKAHEAD,
    WITH_THE_NULL_BLOCK,
)
from schedproof.properties.vllm import strategies as vllm
from schedproof.properties.vllm.history import encoder
from schedproof.properties.vllm.request_features import encoders, with_pictures, with_turns
from schedproof.tests.properties.drawn import SCALES, find_example, history

REVISION = "documented"
# Six blocks of four; requests of at most 24 tokens.
CONFIG = {
    **{"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 9},
    **{"max_model_len": 24, "long_prefill_token_threshold": 0, "enable_chunked_prefill": True},
    **{"enable_prefix_caching": True, "policy": "fcfs", "watermark": 0.0},
    **{"reserve_full_isl": True},
}


def _configs(scale):
    return vllm.configs(scale, REVISION)


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_every_configuration_is_one_that_vllm_takes(scale, data):
    config = data.draw(_configs(scale))
    assert 1 <= config["max_num_seqs"] <= 6
    assert config["max_num_batched_tokens"] >= config["max_num_seqs"]
    assert config["long_prefill_token_threshold"] <= config["max_model_len"]
    if not config["enable_chunked_prefill"]:
        assert config["max_num_batched_tokens"] >= config["max_model_len"]


@pytest.mark.parametrize("scale", ["short", "tight"])
@given(data=st.data())
def test_short_and_tight_configurations_keep_the_published_block_size(scale, data):
    config = data.draw(_configs(scale))
    assert config["block_size"] == 16
    if scale == "tight" and config["enable_chunked_prefill"]:
        assert config["max_num_batched_tokens"] >= 64


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_a_watermark_does_not_depend_on_whether_the_unusable_block_counts(scale, data):
    config = read_config(data.draw(_configs(scale)), REVISION)
    if config.num_blocks is not None:
        more = int(config.watermark * (config.num_blocks + 1))
        assert config.watermark_blocks == more <= max(config.num_blocks // 3, 1)


@pytest.mark.parametrize("tokens", [12, 16, vllm.MODEL_LENGTH])
def test_a_pool_is_tried_with_what_it_holds_with_the_null_block_and_with_any_length(tokens):
    find_example(vllm.served_lengths(4, 3), lambda length: length == tokens)


@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_kinds_that_a_release_refuses_are_not_drawn(scale, data):
    without_v2 = {V2_AHEAD_IN_STAGES, V2_WITHOUT_LOOKAHEAD}
    kinds = frozenset({WITH_THE_NULL_BLOCK, ANY_LENGTH, AHEAD_IN_STAGES, *without_v2})
    config = data.draw(vllm.configs(scale, REVISION, kinds))
    pool = (config["num_blocks"] or 10**6) * config["block_size"]
    assert config["max_model_len"] <= pool
    assert not (config.get("async_scheduling") and "pipeline_parallel_size" in config)
    if config.get("use_v2_model_runner") and "num_speculative_tokens" in config:
        assert config["num_lookahead_tokens"]


@given(data=st.data())
def test_an_encoder_is_what_vllm_derives_for_some_model(data):
    config = data.draw(_configs("small"))
    drawn = data.draw(encoders(config))
    whole = drawn.pop("disable_chunked_mm_input", False)
    [size] = {*drawn.values()}
    assert not whole or size == config["max_num_batched_tokens"]
    assert size >= config["max_num_batched_tokens"]


@pytest.mark.parametrize("scale", SCALES)
def test_pools_are_tried_that_a_server_of_this_length_would_not_and_would_start_with(scale):
    def longest(config):
        return ceil(config["max_model_len"] / config["block_size"])

    find_example(_configs(scale), lambda config: (config["num_blocks"] or 99) < longest(config))
    find_example(_configs(scale), lambda config: config["num_blocks"] == longest(config))


@pytest.mark.parametrize("scale", SCALES)
def test_watermarks_of_a_block_and_of_a_third_of_the_pool_are_tried(scale):
    def kept(config):
        return read_config(config, REVISION).watermark_blocks

    find_example(_configs(scale), lambda config: kept(config) == 1)
    find_example(
        _configs(scale),
        lambda config: config["num_blocks"] and kept(config) > config["num_blocks"] // 4,
    )


def test_the_smallest_blocks_are_tried():
    assert {
        find_example(_configs("small"), lambda c, n=n: c["block_size"] == n)["block_size"]
        for n in (1, 2, 4, 8)
    } == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, 24),
        ({"num_blocks": None}, 24),
        ({"num_blocks": 5}, 21),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 30}, 24),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 17}, 18),
    ],
)
def test_the_longest_request_is_what_the_door_lets_in(changes, longest):
    config = CONFIG | changes
    assert vllm.longest_request(config) == longest
    model = make_model(REVISION, config)
    for tokens, refused in ((longest, False), (longest + 1, True)):
        newcomer = Request(id="a", arrival=0, prompt=(("a", tokens - 3),), max_tokens=3)
        assert (model.refusal(newcomer) is not None) is refused


@pytest.mark.parametrize("prompt", [3, 4, 5, 8, 9, 10, 18, 23])
def test_prompts_at_the_borders_of_blocks_budget_and_length_are_tried(prompt):
    config = CONFIG | {"num_blocks": 9}
    find_example(vllm.shapes(config), lambda shape: shape.prompt == prompt)


@pytest.mark.slow
def test_answers_that_fill_the_pool_and_that_stop_early_are_tried():
    def fills(shape):
        return shape.prompt == 1 and shape.output_len == 23

    find_example(vllm.shapes(CONFIG), fills)
    find_example(vllm.shapes(CONFIG), lambda shape: shape.output_len < shape.max_tokens)


@pytest.mark.parametrize("prompt", [11, 12, 13, 7, 8, 2])
def test_a_late_request_aims_at_what_is_left(prompt):
    """Two decode, five and eight tokens computed; of four free blocks the second takes one: three
    are left, 12 tokens. Of the budget 7 are left. With 2 tokens it fills its block when the first
    does."""
    config = CONFIG | {"num_blocks": 9}
    book = history("vllm", config, [5, 8], free=4)
    find_example(vllm.beside_the_batch(config, book), lambda shape: shape.prompt == prompt)


def test_a_late_request_aims_at_what_the_watermark_leaves():
    """Of three blocks one is to be kept."""
    config = CONFIG | {"num_blocks": 9, "watermark": 0.15}
    book = history("vllm", config, [5, 8], free=4)
    for prompt in (8, 9):
        late = vllm.beside_the_batch(config, book)
        find_example(late, lambda shape, prompt=prompt: shape.prompt == prompt)


def test_a_late_request_may_be_more_important_than_everybody():
    book = history("vllm", CONFIG, [5, 8], free=1, priority=-1)
    find_example(vllm.beside_the_batch(CONFIG, book), lambda shape: shape.priority == -2)


def test_who_comes_during_a_prefill_fills_the_pool_together_with_its_chunks():
    """Seven blocks are free; the long prompt takes one of them a step. The newcomer takes one in
    each step too: after three the pool is full, and the fourth chunk and its first token meet."""
    config = CONFIG | {"num_blocks": 9, "max_model_len": 36, "long_prefill_token_threshold": 4}
    long = Request(id="long", arrival=0, prompt=(("long", 36),), max_tokens=1)
    book = RunHistory(config, REVISION, "vllm")
    book.accept(long)
    book.observe(Step(kind="prefill", scheduled={"long": 4}, free_blocks=7))
    late = vllm.beside_a_prefill(config, book)
    find_example(late, lambda shape: shape.priority == -1)
    with pytest.raises(NoSuchExample):
        find_example(late, lambda shape: shape.prompt != 12)


def test_few_priorities_are_drawn_so_that_many_are_equal():
    drawn = {
        find_example(vllm.shapes(CONFIG), lambda shape, n=n: shape.priority == n).priority
        for n in (-1, 0, 1, 2)
    }
    assert drawn == {-1, 0, 1, 2}


@pytest.mark.parametrize(
    ("computed", "free", "steps"),
    [
        ([5, 8], 0, 0),  # the second needs a block at once
        ([5, 7], 0, 1),
        ([5, 6], 1, 3),  # the second takes it after two steps, the first lacks one after three
        ([5, 8], 2, 0),  # enough within a block: the second one's is full
        ([5, 6], 2, 2),
        ([], 0, 0),
    ],
)
def test_steps_to_border_lead_to_the_lack_of_a_block_or_to_a_full_one(computed, free, steps):
    assert vllm.steps_to_border(CONFIG, history("vllm", CONFIG, computed, free)) == steps


def test_who_ends_before_takes_no_block():
    """One token is still to come, and fits."""
    book = history("vllm", CONFIG, [7], free=0, max_tokens=1)
    assert vllm.steps_to_border(CONFIG, book) == 1


def test_without_a_bound_steps_to_border_lead_to_a_full_block():
    config = CONFIG | {"num_blocks": None}
    assert vllm.free_blocks(config, history("vllm", config, [5, 7])) is None
    assert vllm.steps_to_border(config, history("vllm", config, [5, 7])) == 1


def test_free_blocks_are_what_the_target_shows_or_else_what_the_tokens_leave():
    assert vllm.free_blocks(CONFIG, history("vllm", CONFIG, [5, 8], free=1)) == 1
    assert vllm.free_blocks(CONFIG, history("vllm", CONFIG, [5, 8])) == 2
    assert vllm.free_blocks(CONFIG, history("vllm", CONFIG, [20, 20])) == 0


SITUATIONS = {
    *("preempted", "several preempted in a step", "served in the step, then preempted"),
    *("admitted on its own old blocks", "admitted in chunks", "a cached block evicted"),
    *("refused by the watermark", "refused by the full sequence"),
    "aborted with blocks that another one holds",
}


@pytest.fixture
def situations(monkeypatch):
    """The situations that the model has been in so far."""
    seen, lost = set(), {}

    def preempt(config, plan, victim, really=scheduler.preempt):
        seen.add("several preempted in a step" if plan.preempted else "preempted")
        if victim.id in plan.scheduled:
            seen.add("served in the step, then preempted")
        lost[victim.id] = victim.blocks[: victim.published]
        return really(config, plan, victim)

    def admit(config, pool, sequence, hit, tokens, runs, really=kv_cache.admit):
        admitted = really(config, pool, sequence, hit, tokens, runs)
        if admitted is None:
            for option, off, name in (
                ("watermark", 0.0, "refused by the watermark"),
                ("reserve_full_isl", False, "refused by the full sequence"),
            ):
                without = msgspec.structs.replace(config, **{option: off})
                if really(without, pool, sequence, hit, tokens, runs) is not None:
                    seen.add(name)
        else:
            if set(hit) & set(lost.get(sequence.id, ())):
                seen.add("admitted on its own old blocks")
            if tokens < sequence.num_tokens - len(hit) * config.block_size:
                seen.add("admitted in chunks")
        return admitted

    def take(pool, count, really=allocator.take):
        taken, rest = really(pool, count)
        if any(content is not None and block in taken for block, content in pool.tail):
            seen.add("a cached block evicted")
        return taken, rest

    def abort(config, state, name, really=scheduler.abort):
        held = {
            block for sequence in state.running if sequence.id != name for block in sequence.blocks
        }
        if any(held & set(sequence.blocks) for sequence in state.running if sequence.id == name):
            seen.add("aborted with blocks that another one holds")
        return really(config, state, name)

    monkeypatch.setattr(scheduler, "preempt", preempt)
    monkeypatch.setattr(kv_cache, "admit", admit)
    monkeypatch.setattr(allocator, "take", take)
    monkeypatch.setattr(scheduler, "abort", abort)
    return seen, lost


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_runs_get_into_every_situation_that_is_worth_checking(scale, situations):
    seen, lost = situations

    class OpenDoor(ModelTarget):
        def add(self, request):
            reply = super().add(request)
            # The request that is drawn beyond a bound; all others are drawn to be accepted.
            assert reply["ok"] or request["id"] == "large", reply
            return reply

    for seed in range(20):
        search = Search(
            SearchOptions(OpenDoor(), "vllm", REVISION, (), scale),
            Hooks(watch=lambda _: lost.clear()),
        )
        assert not run_search(search, 50, seed, 0)
        assert not search.refused
        if seen == SITUATIONS:
            return
    pytest.fail(f"never in 20 searches: {SITUATIONS - seen}")


def test_most_sessions_have_one_max_tokens_and_some_have_several():
    config = full_config("vllm", REVISION, {"streaming_inputs": True})
    plain = Request(id="r0", arrival=0, prompt=(("r0", 9),), max_tokens=4)
    sessions = []

    @settings(max_examples=300, database=None, derandomize=True, phases=(Phase.generate,))
    @given(with_turns(plain, config))
    def draws(request):
        sessions.append({request.max_tokens, *(turn.max_tokens for turn in request.turns)})

    draws()
    several = [numbers for numbers in sessions if len(numbers) > 1]
    assert 0 < len(several) < len(sessions) / 4


@st.composite
def configs(draw):
    config = draw(vllm.configs("small", "documented"))
    assume(all(group["kind"] != "mamba" for group in config.get("kv_groups") or ()))
    drawn = draw(encoders(config))
    others = ("streaming_inputs", "max_loras", "prefill_schedule_interval")
    kept = {key: value for key, value in config.items() if key not in others}
    return full_config("vllm", "documented", kept | drawn)


@pytest.mark.slow
@given(st.data())
def test_requests_with_pictures_keep_their_length_and_can_be_computed(data):
    config = data.draw(configs())
    requests: list[Request] = []
    for number in range(3):
        name, length = f"r{number}", data.draw(st.integers(1, 20))
        content = data.draw(vllm.contents(config, requests, name, length))
        plain = Request(id=name, arrival=0, prompt=content, max_tokens=1)
        request = data.draw(with_pictures(plain, config))
        assert request.prompt_len == plain.prompt_len
        assert not encoder.beyond(config, encoder.inputs_of(request))
        requests.append(request)
    check_requests(tuple(requests))
