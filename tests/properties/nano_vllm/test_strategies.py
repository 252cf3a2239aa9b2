"""Generated configurations and requests are accepted, and bring about what is worth checking."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from schedproof.model import allocator
from schedproof.model.nano_vllm import block_manager, documented, release_0_2_0, scheduler
from schedproof.model.nano_vllm.config import read_config
from schedproof.model.nano_vllm.model import make_model
from schedproof.model.observation import Step
from schedproof.model.scenario import Request, check_requests
from schedproof.model.target import ModelTarget
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.nano_vllm import strategies as nano_vllm
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions

SCALES = ("small", "short", "tight")
REVISIONS = ("documented", "0.2.0")
each_scale = pytest.mark.parametrize("scale", SCALES)
each_revision = pytest.mark.parametrize("revision", REVISIONS)
# Six blocks of four; requests of at most 25 tokens, of which the last is not computed.
CONFIG = {"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 26}
IN_CHUNKS = CONFIG | {"max_num_batched_tokens": 9}
EARLIER = Request(id="r0", arrival=0, prompt=(("r0", 14),), max_tokens=6, output_len=5)


def _found(strategy, condition):
    """An example with the condition; `find` raises where there is none."""
    unshrunk = settings(max_examples=2000, database=None, phases=(Phase.generate,))
    return find(strategy, condition, settings=unshrunk)


def _history(config, computed, free=None, revision="documented", **changes):
    """Requests that have computed so many tokens and decode, in a step with so many free blocks."""
    history = RunHistory(config, revision, "nano_vllm")
    for index, tokens in enumerate(computed):
        name = f"r{index}"
        given = {"prompt": ((name, tokens),), "max_tokens": 5} | changes
        history.accept(Request(id=name, arrival=0, **given))
    scheduled = {f"r{index}": tokens for index, tokens in enumerate(computed)}
    kind = "prefill" if scheduled else "idle"
    history.observe(Step(kind=kind, scheduled=scheduled, free_blocks=free))
    return history


def _fits(config, shape, revision):
    request = _request("fits", (("fits", shape.prompt),), shape)
    assert make_model(revision, config).refusal(request) is None
    check_requests((request,))


def _request(name, content, shape, **changes):
    return Request(
        id=name,
        arrival=0,
        prompt=content,
        max_tokens=shape.max_tokens,
        output_len=shape.output_len,
        **changes,
    )


@each_revision
@each_scale
@given(data=st.data())
def test_every_configuration_can_be_modelled_and_names_every_key(scale, revision, data):
    config = data.draw(nano_vllm.configs(scale, revision))
    assert list(config) == list(read_config(config, revision).__struct_fields__)
    assert config["block_size"] in nano_vllm.BLOCK_SIZES[scale]
    assert nano_vllm.scale_of(config) == scale
    assert 2 <= config["num_blocks"] <= 14
    assert 1 <= config["max_num_seqs"] <= 6


@each_scale
@given(data=st.data())
def test_where_prompts_are_computed_whole_the_budget_has_room_for_more_than_half_a_pool(
    scale, data
):
    config = data.draw(nano_vllm.configs(scale, "documented"))
    whole = config["block_size"] * config["num_blocks"]
    assert whole < 2 * config["max_num_batched_tokens"]
    assert config["max_num_batched_tokens"] <= whole + config["block_size"]


@each_revision
@each_scale
def test_every_number_of_slots_and_budgets_around_the_pool_are_tried(scale, revision):
    configs = nano_vllm.configs(scale, revision)
    for slots in range(1, 7):
        _found(configs, lambda one, slots=slots: one["max_num_seqs"] == slots)

    def over(one):
        return one["max_num_batched_tokens"] - one["block_size"] * one["num_blocks"]

    _found(configs, lambda one: over(one) < 0)
    _found(configs, lambda one: over(one) > 0)


@each_scale
def test_where_prompts_go_in_chunks_budgets_of_less_than_a_block_are_tried(scale):
    configs = nano_vllm.configs(scale, "0.2.0")
    _found(configs, lambda one: one["max_num_batched_tokens"] < one["block_size"])
    _found(configs, lambda one: one["max_num_batched_tokens"] == one["block_size"] - 1)


def test_every_size_of_a_small_block_is_tried():
    configs = nano_vllm.configs("small", "documented")
    sizes = {_found(configs, lambda c, n=n: c["block_size"] == n)["block_size"] for n in (2, 3, 8)}
    assert sizes == {2, 3, 8}
    assert nano_vllm.BLOCK_SIZES["short"] == (16,)
    assert nano_vllm.BLOCK_SIZES["tight"] == (256,)


def test_a_block_of_no_scale_counts_as_large():
    assert nano_vllm.scale_of({"block_size": 512}) == "tight"


@each_revision
@each_scale
@given(data=st.data())
def test_requests_fit(scale, revision, data):
    config = data.draw(nano_vllm.configs(scale, revision))
    _fits(config, data.draw(nano_vllm.shapes(config)), revision)


@each_revision
@each_scale
@given(data=st.data())
def test_late_requests_fit(scale, revision, data):
    config = data.draw(nano_vllm.configs(scale, revision))
    whole = config["block_size"] * config["num_blocks"]
    computed = data.draw(st.lists(st.integers(1, whole), min_size=1, max_size=4))
    free = data.draw(st.none() | st.integers(0, config["num_blocks"]))
    history = _history(config, computed, free, revision)
    _fits(config, data.draw(nano_vllm.beside_the_batch(config, history)), revision)
    assert 0 <= nano_vllm.steps_to_border(config, history) < config["block_size"]


@each_revision
@each_scale
@given(data=st.data())
def test_long_prompts_and_those_who_come_meanwhile_fit(scale, revision, data):
    config = data.draw(nano_vllm.configs(scale, revision))
    long = data.draw(nano_vllm.long_prompts(config))
    _fits(config, long, revision)
    history = RunHistory(config, revision, "nano_vllm")
    history.accept(_request("long", (("long", max(long.prompt, 2)),), long))
    history.observe(Step(kind="prefill", scheduled={"long": 1}))
    _fits(config, data.draw(nano_vllm.beside_a_prefill(config, history)), revision)


@pytest.mark.slow
@each_revision
@each_scale
@given(data=st.data())
def test_requests_with_prompts_that_came_before_fit_as_well(scale, revision, data):
    config = data.draw(nano_vllm.configs(scale, revision))
    requests = []
    for index in range(data.draw(st.integers(1, 4))):
        name = f"r{index}"
        shape = data.draw(nano_vllm.shapes(config))
        content = data.draw(nano_vllm.contents(config, requests, name, shape.prompt))
        fitted = nano_vllm.fitted(config, content, shape)
        assert fitted.prompt == sum(tokens for _, tokens in content)
        _fits(config, fitted, revision)
        _fits(config, nano_vllm.fitted(config, content, None), revision)
        abort_at = data.draw(st.none() | st.just(3))
        requests.append(_request(name, content, fitted, abort_at=abort_at))
    check_requests(tuple(requests))


@pytest.mark.parametrize(
    ("revision", "budget", "longest"),
    [
        ("documented", 26, 25),
        ("documented", 24, 25),
        ("documented", 23, 24),
        ("documented", 13, 14),
        ("0.2.0", 12, 25),
        ("0.2.0", 1, 25),
    ],
)
def test_the_longest_request_is_what_the_door_lets_in(revision, budget, longest):
    config = CONFIG | {"max_num_batched_tokens": budget}
    assert nano_vllm.longest_request(config) == longest
    model = make_model(revision, config)
    for tokens, refused in ((longest, False), (longest + 1, True)):
        asked = Request(id="a", arrival=0, prompt=(("a", tokens - 3),), max_tokens=3)
        assert (model.refusal(asked) is not None) is refused


@pytest.mark.parametrize("prompt", [3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 17, 18, 19, 24])
def test_prompts_at_the_borders_of_blocks_and_budget_are_tried(prompt):
    """Blocks of 4, a budget of 9, up to three of each."""
    assert nano_vllm.borders(IN_CHUNKS) == [4, 9]
    _found(nano_vllm.shapes(IN_CHUNKS), lambda shape: shape.prompt == prompt)


def test_answers_that_fill_the_pool_and_that_stop_early_are_tried():
    def fills(shape):
        return shape.prompt <= 2 and shape.prompt + shape.output_len == 25

    _found(nano_vllm.shapes(CONFIG), fills)
    _found(nano_vllm.shapes(CONFIG), lambda shape: shape.output_len < shape.max_tokens)


@pytest.mark.parametrize(("block", "most"), [(4, 99), (16, 64), (256, 40)])
def test_answers_are_short_where_a_pool_is_large(block, most):
    config = {"block_size": block, "num_blocks": 30}
    config |= {"max_num_seqs": 3, "max_num_batched_tokens": block * 30}
    assert nano_vllm.with_tokens(config, 1, 99).max_tokens == most


def test_long_prompts_are_up_to_two_blocks_short_of_the_pool():
    drawn = nano_vllm.long_prompts(CONFIG)
    for prompt in (24, 17):
        _found(drawn, lambda shape, prompt=prompt: shape.prompt == prompt)


@given(st.data())
def test_no_long_prompt_leaves_more_than_two_blocks(data):
    assert data.draw(nano_vllm.long_prompts(CONFIG)).prompt >= 17


@pytest.mark.parametrize("prompt", [11, 12, 13, 7, 8, 9, 2, 3])
def test_a_late_request_aims_at_what_is_left(prompt):
    """Three blocks are free, or two if another one takes one; with 2 tokens it fills its block
    when the first of requests that run does."""
    history = _history(CONFIG, [5, 8], free=3)
    _found(nano_vllm.beside_the_batch(CONFIG, history), lambda shape: shape.prompt == prompt)


@given(scale=st.sampled_from(SCALES), data=st.data())
def test_without_somebody_earlier_a_prompt_is_its_own(scale, data):
    config = data.draw(nano_vllm.configs(scale, "documented"))
    assert data.draw(nano_vllm.contents(config, [], "r1", 7)) == (("r1", 7),)


@pytest.mark.parametrize(
    "content",
    [
        (("r1", 18),),
        (("r0", 14),),
        (("r0", 12),),
        (("r0", 4), ("r1", 14)),
        (("r0", 9), ("r1", 9)),
        (("r0", 14), ("r1", 4)),
        (("r0", 14), ("out:r0", 4)),
        (("r0", 14), ("out:r0", 5)),
    ],
    ids=[
        *("its own", "as it was", "its whole blocks", "a block", "a budget"),
        *("all of the prompt", "up to its own length", "with its answer"),
    ],
)
def test_a_prompt_repeats_an_earlier_one_up_to_where_caching_decides(content):
    drawn = nano_vllm.contents(IN_CHUNKS, [EARLIER], "r1", 18)
    assert _found(drawn, lambda found: found == content) == content


def test_what_an_aborted_request_said_comes_again():
    gone = Request(id="gone", arrival=0, prompt=(("gone", 9),), max_tokens=6, abort_at=2)
    drawn = nano_vllm.contents(CONFIG, [gone, EARLIER], "r1", 18)
    _found(drawn, lambda content: content[0][0] == "gone")


def test_every_configuration_caches():
    assert nano_vllm.caches(CONFIG)


@pytest.mark.parametrize(
    ("computed", "steps"), [([5, 8], 0), ([5, 7], 1), ([5, 6], 2), ([5], 3), ([], 0)]
)
def test_steps_to_border_lead_to_the_next_token_that_begins_a_block(computed, steps):
    assert nano_vllm.steps_to_border(CONFIG, _history(CONFIG, computed)) == steps


def test_free_blocks_are_what_the_target_shows_or_else_what_the_tokens_leave():
    assert nano_vllm.free_blocks(CONFIG, _history(CONFIG, [5, 8], free=1)) == 1
    assert nano_vllm.free_blocks(CONFIG, _history(CONFIG, [5, 8])) == 2
    assert nano_vllm.free_blocks(CONFIG, _history(CONFIG, [20, 20])) == 0
    assert nano_vllm.free_blocks(CONFIG, RunHistory(CONFIG, "documented", "nano_vllm")) == 6


SITUATIONS = {
    *("preempted", "several preempted in a step", "its own victim"),
    *("admitted on its own old blocks", "a cached block evicted", "a block filled twice"),
    *("every slot taken", "aborted with blocks that another one holds"),
}
ONLY_IN = {
    "documented": {"kept out by blocks that it would share"},
    "0.2.0": {"cut to the budget", "cut behind a hit", "more run than slots"},
}


@pytest.fixture
def situations(monkeypatch):
    """The situations that the model has been in so far."""
    seen, lost = set(), {}

    def preempt(config, plan, victim, ready, really=documented.preempt):
        seen.add("several preempted in a step" if plan.preempted else "preempted")
        if plan.running == (victim,):
            seen.add("its own victim")
        lost[victim.id] = victim.blocks[: victim.published]
        return really(config, plan, victim, ready)

    def allocate(config, pool, one, hit, really=block_manager.allocate):
        if set(hit) & set(lost.get(one.id, ())):
            seen.add("admitted on its own old blocks")
        return really(config, pool, one, hit)

    def take(pool, count, really=allocator.take):
        taken, left = really(pool, count)
        if left.cached != pool.cached:
            seen.add("a cached block evicted")
        return taken, left

    def hash_blocks(config, pool, one, really=block_manager.hash_blocks):
        after, left = really(config, pool, one)
        if any(left.cached[content] != holders for content, holders in pool.cached.items()):
            seen.add("a block filled twice")
        return after, left

    def noted(config, plan, chunked):
        if len(plan.running) > config.max_num_seqs:
            seen.add("more run than slots")
        elif plan.waiting and len(plan.running) == config.max_num_seqs:
            seen.add("every slot taken")
        head = plan.waiting[0] if plan.waiting else None
        if head is not None and head.id in plan.scheduled:
            seen.add("cut behind a hit" if head.prefix_hit else "cut to the budget")
        elif head is not None and not chunked and not plan.preempted:
            hit = block_manager.prefix_hit(config, plan.pool, head)
            needed = block_manager.blocks_for(head.num_tokens, config.block_size)
            unshared = block_manager.unshared_blocks(config, plan.pool, head, hit)
            if documented.fits(plan.pool, unshared) and not documented.fits(plan.pool, needed):
                seen.add("kept out by blocks that it would share")
        return plan

    def in_deck(config, state, really=documented.schedule):
        return noted(config, really(config, state), chunked=False)

    def in_release(config, state, really=release_0_2_0.schedule):
        return noted(config, really(config, state), chunked=True)

    def abort(config, state, name, really=scheduler.abort):
        everybody = state.running + state.waiting
        held = {block for one in everybody if one.id != name for block in one.blocks}
        if any(held & set(one.blocks) for one in everybody if one.id == name):
            seen.add("aborted with blocks that another one holds")
        return really(config, state, name)

    for place, wrapped in (
        (documented, preempt),
        (scheduler, abort),
        *((block_manager, each) for each in (allocate, hash_blocks)),
        (allocator, take),
    ):
        monkeypatch.setattr(place, wrapped.__name__, wrapped)
    monkeypatch.setattr(documented, "schedule", in_deck)
    monkeypatch.setattr(release_0_2_0, "schedule", in_release)
    return seen, lost


@pytest.mark.slow
@each_revision
@pytest.mark.parametrize("scale", ["small", "short"])
def test_runs_get_into_every_situation_that_is_worth_checking(scale, revision, situations):
    seen, lost = situations
    wanted = SITUATIONS | ONLY_IN[revision]
    for seed in range(20):
        search = Search(
            SearchOptions(ModelTarget(), "nano_vllm", revision, (), scale),
            Hooks(watch=lambda _: lost.clear()),
        )
        assert not run_search(search, 50, seed, 0)
        assert (search.refused, search.rejected) == ({}, 0)
        if seen >= wanted:
            return
    pytest.fail(f"never in 20 searches: {wanted - seen}")
