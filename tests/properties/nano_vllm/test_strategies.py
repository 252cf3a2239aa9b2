"""Generated configurations and requests are accepted, and bring about what is worth checking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.model import allocator
from schedproof.model.nano_vllm import block_manager, documented, release_0_2_0, scheduler
from schedproof.model.nano_vllm.model import make_model
from schedproof.model.scenario import Request
from schedproof.model.target import ModelTarget
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.nano_vllm import strategies as nano_vllm
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.tests.properties.drawn import SCALES, find_example, history

REVISIONS = ("documented", "0.2.0")
each_scale = pytest.mark.parametrize("scale", SCALES)
each_revision = pytest.mark.parametrize("revision", REVISIONS)
# Six blocks of four; requests of at most 25 tokens, of which the last is not computed.
CONFIG = {"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 26}
IN_CHUNKS = CONFIG | {"max_num_batched_tokens": 9}


@each_revision
@each_scale
@given(data=st.data())
def test_configurations_are_small(scale, revision, data):
    config = data.draw(nano_vllm.configs(scale, revision))
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


@pytest.mark.slow
@each_revision
@each_scale
def test_every_number_of_slots_and_budgets_around_the_pool_are_tried(scale, revision):
    configs = nano_vllm.configs(scale, revision)
    for slots in range(1, 7):
        find_example(configs, lambda config, slots=slots: config["max_num_seqs"] == slots)

    def over(config):
        return config["max_num_batched_tokens"] - config["block_size"] * config["num_blocks"]

    find_example(configs, lambda config: over(config) < 0)
    find_example(configs, lambda config: over(config) > 0)


@each_scale
def test_where_prompts_go_in_chunks_budgets_of_less_than_a_block_are_tried(scale):
    configs = nano_vllm.configs(scale, "0.2.0")
    find_example(configs, lambda config: config["max_num_batched_tokens"] < config["block_size"])
    find_example(
        configs, lambda config: config["max_num_batched_tokens"] == config["block_size"] - 1
    )


def test_every_size_of_a_small_block_is_tried():
    configs = nano_vllm.configs("small", "documented")
    sizes = {
        find_example(configs, lambda c, n=n: c["block_size"] == n)["block_size"] for n in (2, 3, 8)
    }
    assert sizes == {2, 3, 8}
    assert nano_vllm.BLOCK_SIZES["short"] == (16,)
    assert nano_vllm.BLOCK_SIZES["tight"] == (256,)


def test_a_block_of_no_scale_counts_as_large():
    assert nano_vllm.scale_of({"block_size": 512}) == "tight"


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
        newcomer = Request(id="a", arrival=0, prompt=(("a", tokens - 3),), max_tokens=3)
        assert (model.refusal(newcomer) is not None) is refused


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 17, 18, 19, 24])
def test_prompts_at_the_borders_of_blocks_and_budget_are_tried(prompt):
    """Blocks of 4, a budget of 9, up to three of each."""
    assert nano_vllm.borders(IN_CHUNKS) == [4, 9]
    find_example(nano_vllm.shapes(IN_CHUNKS), lambda shape: shape.prompt == prompt)


def test_answers_that_fill_the_pool_and_that_stop_early_are_tried():
    def fills(shape):
        return shape.prompt <= 2 and shape.prompt + shape.output_len == 25

    find_example(nano_vllm.shapes(CONFIG), fills)
    find_example(nano_vllm.shapes(CONFIG), lambda shape: shape.output_len < shape.max_tokens)


@pytest.mark.parametrize(("block", "most"), [(4, 99), (16, 64), (256, 40)])
def test_answers_are_short_where_a_pool_is_large(block, most):
    config = {"block_size": block, "num_blocks": 30}
    config |= {"max_num_seqs": 3, "max_num_batched_tokens": block * 30}
    assert nano_vllm.with_tokens(config, 1, 99).max_tokens == most


def test_long_prompts_are_up_to_two_blocks_short_of_the_pool():
    drawn = nano_vllm.long_prompts(CONFIG)
    for prompt in (24, 17):
        find_example(drawn, lambda shape, prompt=prompt: shape.prompt == prompt)


@given(st.data())
def test_no_long_prompt_leaves_more_than_two_blocks(data):
    assert data.draw(nano_vllm.long_prompts(CONFIG)).prompt >= 17


@pytest.mark.parametrize("prompt", [11, 12, 13, 7, 8, 9, 2, 3])
def test_a_late_request_aims_at_what_is_left(prompt):
    """Three blocks are free, or two if another one takes one; with 2 tokens it fills its block
    when the first of requests that run does."""
    book = history("nano_vllm", CONFIG, [5, 8], free=3)
    find_example(nano_vllm.beside_the_batch(CONFIG, book), lambda shape: shape.prompt == prompt)


@pytest.mark.parametrize(
    ("computed", "steps"), [([5, 8], 0), ([5, 7], 1), ([5, 6], 2), ([5], 3), ([], 0)]
)
def test_steps_to_border_lead_to_the_next_token_that_begins_a_block(computed, steps):
    assert nano_vllm.steps_to_border(CONFIG, history("nano_vllm", CONFIG, computed)) == steps


def test_free_blocks_are_what_the_target_shows_or_else_what_the_tokens_leave():
    assert nano_vllm.free_blocks(CONFIG, history("nano_vllm", CONFIG, [5, 8], free=1)) == 1
    assert nano_vllm.free_blocks(CONFIG, history("nano_vllm", CONFIG, [5, 8])) == 2
    assert nano_vllm.free_blocks(CONFIG, history("nano_vllm", CONFIG, [20, 20])) == 0
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

    def allocate(config, pool, sequence, hit, really=block_manager.allocate):
        if set(hit) & set(lost.get(sequence.id, ())):
            seen.add("admitted on its own old blocks")
        return really(config, pool, sequence, hit)

    def take(pool, count, really=allocator.take):
        taken, rest = really(pool, count)
        if rest.cached != pool.cached:
            seen.add("a cached block evicted")
        return taken, rest

    def hash_blocks(config, pool, sequence, really=block_manager.hash_blocks):
        after, rest = really(config, pool, sequence)
        if any(rest.cached[content] != holders for content, holders in pool.cached.items()):
            seen.add("a block filled twice")
        return after, rest

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
        held = {block for sequence in everybody if sequence.id != name for block in sequence.blocks}
        if any(held & set(sequence.blocks) for sequence in everybody if sequence.id == name):
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
@pytest.mark.parametrize("scale", ["small", pytest.param("short", marks=pytest.mark.nightly)])
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
