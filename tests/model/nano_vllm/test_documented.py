"""The decision of the deck, and what the release decides otherwise. Block 4, budget 16."""

import pytest

from schedproof.model.nano_vllm import documented
from schedproof.model.nano_vllm.state import Plan, State
from schedproof.model.pool import Pool, free_blocks

from .build import (
    IN_CHUNKS,
    REVISIONS,
    WHOLE,
    ModelRun,
    config,
    decided,
    decoding,
    ids,
    order,
    pool,
    queue,
    waiting,
)

each_revision = pytest.mark.parametrize("revision", REVISIONS)


@each_revision
def test_who_runs_decodes_only_if_nobody_is_admitted(revision):
    runs = (decoding("r", 5, 1, 2),)
    plan = decided(queue(5, running=runs, pool=pool(16, 2)), revision)
    assert (plan.is_prefill, plan.scheduled) == (True, {"a": 5})
    assert ids(plan.running) == ["r", "a"]
    full = decided(queue(5, running=runs, pool=pool(2, 2)), revision)
    assert (full.is_prefill, full.scheduled, ids(full.waiting)) == (False, {"r": 1}, ["a"])


@each_revision
def test_waiting_sequences_are_admitted_in_order_while_the_budget_lasts(revision):
    plan = decided(queue(6, 7, 3, 1), revision)
    assert order(plan) == [("a", 6), ("b", 7), ("c", 3)]
    assert (ids(plan.running), ids(plan.waiting)) == (["a", "b", "c"], ["d"])


@each_revision
@pytest.mark.parametrize(
    ("prompts", "size"), [((6, 11, 1), 16), ((6, 7, 1), 3)], ids=["budget", "memory"]
)
def test_the_first_that_fails_a_gate_stops_the_loop(revision, prompts, size):
    plan = decided(queue(*prompts, pool=Pool(size)), revision)
    assert (plan.scheduled, ids(plan.waiting)) == ({"a": 6}, ["b", "c"])


@each_revision
@pytest.mark.parametrize(("blocks", "admitted"), [(4, ["a", "b"]), (3, ["a"])])
def test_the_last_free_block_is_given_away(revision, blocks, admitted):
    assert ids(decided(queue(5, 8, pool=Pool(blocks)), revision).running) == admitted


def test_fits_means_that_as_many_are_free():
    assert documented.fits(pool(9, 4), 5)
    assert not documented.fits(pool(9, 4), 6)
    assert documented.fits(Pool(None), 10**6)


def sharers(free):
    """One runs with two full blocks, and one waits that begins with the same and has five more."""
    content = (("s", 8),)
    runs = decoding("r", 8, 1, 2, content=content, published=2)
    joins = waiting(13, name="a", content=(*content, ("a", 5)))
    cached = {(("s", 4),): (1,), content: (2,)}
    return State((joins,), (runs,), Pool(2 + free, (), 3, (), cached))


@each_revision
def test_what_is_cached_costs_no_budget(revision):
    plan = decided(sharers(9), revision, max_num_batched_tokens=5)
    assert plan.scheduled == {"a": 5}
    [_, sequence] = plan.running
    assert (sequence.computed, sequence.prefix_hit, sequence.blocks) == (8, 8, (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("revision", "free", "admitted"),
    [(WHOLE, 4, True), (WHOLE, 3, False), (IN_CHUNKS, 2, True), (IN_CHUNKS, 1, False)],
)
def test_shared_blocks_must_be_free_as_well_in_the_deck_and_not_in_the_release(
    revision, free, admitted
):
    plan = decided(sharers(free), revision)
    assert (plan.scheduled == {"a": 5}) is admitted
    assert plan.is_prefill is admitted


@pytest.mark.parametrize(("free", "admitted"), [(4, True), (3, False)])
def test_cached_blocks_that_nobody_holds_must_be_free_in_the_release_too(free, admitted):
    """The two cached ones are among the free."""
    cached = {(("s", 4),): (1,), (("s", 8),): (2,)}
    tail = ((2, (("s", 8),)), (1, (("s", 4),)))
    joins = waiting(13, name="a", content=(("s", 8), ("a", 5)))
    state = State((joins,), (), Pool(free, (), 3, tail, cached))
    plan = decided(state, IN_CHUNKS)
    assert (plan.scheduled == {"a": 5}) is admitted


@pytest.mark.parametrize(("revision", "joined"), [(WHOLE, ["a"]), (IN_CHUNKS, ["a", "b"])])
def test_slots_are_those_of_the_running_in_the_deck_and_of_the_step_in_the_release(
    revision, joined
):
    runs = (decoding("r", 5, 1, 2),)
    plan = decided(queue(1, 1, 1, running=runs, pool=pool(16, 2)), revision, max_num_seqs=2)
    assert list(plan.scheduled) == joined
    assert ids(plan.running) == ["r", *joined]


def test_the_deck_admits_nobody_while_every_slot_is_taken():
    runs = (decoding("q", 5, 1, 2), decoding("r", 5, 3, 4))
    plan = decided(queue(1, running=runs, pool=pool(16, 4)), max_num_seqs=2)
    assert (plan.is_prefill, plan.scheduled) == (False, {"q": 1, "r": 1})


def test_in_the_release_those_behind_the_slots_wait_until_one_in_front_ends():
    run = ModelRun(IN_CHUNKS, block_size=4, num_blocks=9, max_num_seqs=2)
    for name, tokens in (("a", 3), ("b", 4), ("c", 2)):
        run.ask(name, 2, max_tokens=tokens)
    seen = run.steps(6)
    assert [list(step["scheduled"]) for step in seen] == [
        *(["a", "b"], ["c"]),
        *(["a", "b"], ["a", "b"], ["b", "c"], []),
    ]
    assert seen[1]["running"] == ["a", "b", "c"]
    assert [step["finished"] for step in seen[3:5]] == [
        {"a": "length"},
        {"b": "length", "c": "length"},
    ]


@each_revision
def test_everyone_who_runs_gets_a_token_in_order_and_keeps_the_order(revision):
    runs = tuple(decoding(name, 5) for name in "cab")
    plan = decided(State(running=runs, pool=pool(16, 6)), revision)
    assert (order(plan), ids(plan.running)) == ([("c", 1), ("a", 1), ("b", 1)], ["c", "a", "b"])
    assert plan.preempted == ()


@each_revision
def test_a_full_pool_hurts_nobody_who_is_inside_a_block(revision):
    runs = (decoding("a", 5, 1, 2), decoding("b", 6, 3, 4))
    plan = decided(State(running=runs, pool=pool(4, 4)), revision)
    assert (plan.scheduled, plan.preempted) == ({"a": 1, "b": 1}, ())


@each_revision
def test_the_last_of_the_queue_gives_way_as_often_as_needed(revision):
    """c's only block is the one that b shares with it, so d's are needed and then c's go, too."""
    a = decoding("a", 4, 1)
    b = decoding("b", 5, 2, 3, content=(("s", 5),), published=1)
    c = decoding("c", 4, 2, content=(("s", 4),), published=1)
    plan = decided(State(running=(a, b, c), pool=pool(3, 3)), revision)
    assert plan.preempted == ("c", "b")
    assert (plan.scheduled, ids(plan.running)) == ({"a": 1}, ["a"])
    assert ids(plan.waiting) == ["b", "c"]
    assert plan.running[0].blocks == (1, 3)


@each_revision
def test_who_finds_no_block_and_is_the_last_itself_gives_way(revision):
    runs = (decoding("a", 5, 1, 2), decoding("b", 4, 3))
    plan = decided(State(running=runs, pool=pool(3, 3)), revision)
    assert (plan.scheduled, plan.preempted) == ({"a": 1}, ("b",))
    assert plan.waiting == (runs[1].rewound(),)
    assert free_blocks(plan.pool) == 1


@each_revision
def test_who_has_had_its_turn_in_the_step_is_not_preempted(revision):
    """a gets the last free block, so b has none; a stays."""
    runs = (decoding("a", 4, 1), decoding("b", 4, 2))
    plan = decided(State(running=runs, pool=pool(3, 2)), revision)
    assert (plan.scheduled, plan.preempted, ids(plan.running)) == ({"a": 1}, ("b",), ["a"])


@each_revision
def test_one_beyond_the_slots_may_be_a_victim(revision):
    runs = (decoding("a", 4, 1), decoding("b", 5, 2, 3), decoding("c", 5, 4, 5))
    plan = decided(State(running=runs, pool=pool(5, 5)), revision, max_num_seqs=1)
    assert (plan.scheduled, plan.preempted) == ({"a": 1}, ("c",))
    assert ids(plan.running) == ["a", "b"]


def test_victims_wait_in_front_with_nothing_but_what_they_generated():
    victim = decoding("b", 5, 2, 3, prefix_hit=4, published=1)
    plan = Plan((decoding("a", 5, 1),), (waiting(5, name="c"),), pool(9, 3), {}, False)
    plan = plan._replace(running=(*plan.running, victim))
    after = documented.preempt(config(), plan, victim, ())
    assert ids(after.running) == ["a"]
    assert after.waiting == (waiting(5, 9, "b", generated=1), waiting(5, name="c"))
    assert after.preempted == ("b",)
    assert after.pool.tail == ((3, None), (2, (("b", 4),)))


@pytest.mark.parametrize("where", ["ready", "running", "waiting"])
def test_a_block_of_a_victim_that_any_other_one_holds_stays_in_use(where):
    """In the release one that waits may hold blocks."""
    other, victim = decoding("a", 5, 1, 2), decoding("b", 5, 1, 3)
    ready = (other,) if where == "ready" else ()
    running = (*((other,) if where == "running" else ()), victim)
    held_back = (other,) if where == "waiting" else ()
    plan = Plan(running, held_back, pool(9, 3), {}, False)
    assert documented.preempt(config(), plan, victim, ready).pool.tail == ((3, None),)


@each_revision
def test_a_preempted_sequence_computes_all_it_knows_and_goes_on_where_it_was(revision):
    run = ModelRun(revision, block_size=4, num_blocks=4, max_num_batched_tokens=40)
    run.ask("a", 7, max_tokens=8)
    run.ask("b", 7, max_tokens=6)
    seen = run.steps(16)
    at = next(place for place, step in enumerate(seen) if step["preempted"])
    # Eight computed tokens of each: two were generated, the second one is not computed.
    assert (seen[at]["scheduled"], seen[at]["waiting"]) == ({"a": 1}, ["b"])
    back = next(step for step in seen[at:] if "b" in step["scheduled"])
    assert back["kind"] == "prefill"
    assert back["scheduled"]["b"] + back["prefix_hit"].get("b", 0) == 9
    assert sum(step["emitted"].get("b", 0) for step in seen) == 6
