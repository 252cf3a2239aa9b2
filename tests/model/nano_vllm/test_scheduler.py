"""One step of the protocol: arrivals, aborts, what completes and what is seen. Block 4."""

import pytest

from schedproof.model.nano_vllm import documented, scheduler
from schedproof.model.nano_vllm.config import NanoConfig
from schedproof.model.nano_vllm.model import make_model
from schedproof.model.nano_vllm.state import Plan, State
from schedproof.model.pool import Pool, free_blocks
from schedproof.model.scenario import Request

from .build import (
    IN_CHUNKS,
    REVISIONS,
    SMALL,
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


def test_a_newcomer_waits_behind_the_others():
    state = queue(5, 5)
    after = scheduler.arrive(state, waiting(1, name="new"))
    assert after == state._replace(waiting=(*state.waiting, waiting(1, name="new")))


@pytest.mark.parametrize("place", ["waiting", "running"])
def test_an_aborted_request_is_gone_from_its_queue_and_to_be_reported(place):
    members = tuple(waiting(5, name=name) for name in "abc")
    state = State(aborted=("x",))._replace(**{place: members})
    after = scheduler.abort(config(), state, "b")
    assert after == State(aborted=("x", "b"))._replace(**{place: (members[0], members[2])})


def test_an_aborted_request_gives_back_what_no_other_one_holds():
    a = decoding("a", 5, 1, 2, content=(("s", 5),), published=1)
    b = decoding("b", 5, 1, 3, content=(("s", 5),), published=1)
    cached = {(("s", 4),): (1,)}
    state = State(running=(a, b), pool=Pool(9, (), 4, (), cached))
    after = scheduler.abort(config(), state, "a")
    assert after.pool == Pool(9, (), 4, ((2, None),), cached)


def test_one_aborted_in_the_middle_of_its_prompt_gives_its_blocks_back():
    run = ModelRun(IN_CHUNKS, block_size=4, num_blocks=8, max_num_batched_tokens=6)
    run.ask("a", 20)
    run.ask("b", 5)
    assert run.step()["free_blocks"] == 3
    run.state = run.model.abort(run.state, "a")
    assert run.state.pool.tail == ((5, None), (4, None), (3, None), (2, None), (1, (("a", 4),)))
    step = run.step()
    assert (step["finished"], step["scheduled"]) == ({"a": "aborted"}, {"b": 5})
    assert step["free_blocks"] == 6


@each_revision
def test_who_is_aborted_inside_a_step_was_scheduled_and_gets_no_token(revision):
    run = ModelRun(revision, block_size=4, num_blocks=8)
    run.ask("a", 5)
    run.ask("b", 5)
    run.step()
    run.state, seen = run.model.step(run.state, ("a", "none_there"))
    assert (seen["scheduled"], seen["emitted"]) == ({"a": 1, "b": 1}, {"b": 1})
    assert (seen["finished"], seen["running"]) == ({"a": "aborted"}, ["b"])
    assert seen["free_blocks"] == 6
    assert run.step()["finished"] == {}


def closed(members, scheduled, **changes):
    state = State(running=members, pool=pool(9, 4))._replace(**changes)
    plan = Plan(state.running, state.waiting, state.pool, scheduled, False)
    return scheduler.postprocess(config(), state, plan)


def test_a_token_comes_out_where_all_is_computed():
    state, emitted, finished = closed((decoding("a", 5, 1, 2),), {"a": 1})
    assert (emitted, finished) == ({"a": 1}, {})
    assert (state.running[0].computed, state.running[0].generated) == (6, 2)


def test_no_token_comes_out_of_a_part_of_a_prompt():
    head = waiting(9, name="a", blocks=(1, 2, 3))
    state, emitted, _ = closed((), {"a": 8}, waiting=(head,))
    assert emitted == {}
    assert (state.waiting[0].computed, state.waiting[0].published) == (8, 2)


@pytest.mark.parametrize(("output_len", "reason"), [(2, "eos"), (9, "length")])
def test_a_sequence_ends_at_eos_or_at_its_last_allowed_token(output_len, reason):
    sequence = waiting(5, 9, "a", blocks=(1, 2, 3, 4), output_len=output_len)
    sequence = sequence._replace(generated=output_len - 1, computed=output_len + 3)
    state, emitted, finished = closed((sequence,), {"a": 1})
    assert (emitted, finished, state.running) == ({"a": 1}, {"a": reason}, ())
    assert {block for block, _ in state.pool.tail} == {1, 2, 3, 4}


def test_who_ends_leaves_what_others_hold():
    ends = decoding("a", 5, 1, 2, output_len=2)
    stays = decoding("b", 5, 1, 3)
    state, _, _ = closed((ends, stays), {"a": 1, "b": 1})
    assert ids(state.running) == ["b"]
    assert [block for block, _ in state.pool.tail] == [2]


def test_sequences_end_in_the_order_of_the_step():
    ends = [decoding(name, 5, block, output_len=2) for block, name in enumerate("ba", 1)]
    state, _, finished = closed(tuple(ends), {"b": 1, "a": 1})
    assert (list(finished), state.running) == (["b", "a"], ())
    assert [block for block, _ in state.pool.tail] == [1, 2]


def test_who_was_aborted_meanwhile_gets_nothing():
    state, emitted, finished = closed((), {"a": 1}, aborted=("a",))
    assert (emitted, finished, state.aborted) == ({}, {"a": "aborted"}, ())


def test_the_prefill_of_a_request_for_one_token_is_all_of_it():
    for revision in REVISIONS:
        run = ModelRun(revision, block_size=4, num_blocks=2)
        run.ask("a", 8, max_tokens=1)
        step = run.step()
        assert (step["emitted"], step["finished"]) == ({"a": 1}, {"a": "length"})
        assert (step["running"], step["free_blocks"], step["slot_blocks"]) == ([], 2, {"a": [1, 2]})


def test_of_a_resumed_sequence_only_the_blocks_are_written_that_were_not_found():
    sequence = waiting(10, name="a", blocks=(1, 2, 3), computed=4)
    plan = Plan((sequence,), (), pool(9, 3), {"a": 6}, True)
    assert scheduler.slot_blocks(config(), State(running=(sequence,)), plan) == {"a": [2, 3]}


def test_who_is_not_scheduled_writes_nowhere():
    plan = Plan((), (), Pool(9), {"gone": 1}, False)
    state = State(running=(decoding("a", 5, 1, 2),))
    assert scheduler.slot_blocks(config(), state, plan) == {}


def test_those_who_hold_nothing_are_not_listed_with_counts():
    limits: NanoConfig = config()
    state, seen = scheduler.step(limits, queue(9, 9), documented.schedule)
    assert (seen["running"], seen["waiting"]) == (["a"], ["b"])
    for field in ("computed", "prefix_hit", "blocks"):
        assert list(seen[field]) == ["a"]
    assert seen["free_blocks"] == free_blocks(state.pool) == 13


@pytest.mark.parametrize(("revision", "first"), [("documented", []), ("0.2.0", ["a"])])
def test_a_prompt_beyond_the_budget_is_a_matter_of_the_revision(revision, first):
    """It is let in by force: the door of `documented` has no way for it."""
    model = make_model(revision, SMALL | {"max_num_batched_tokens": 4})
    request = Request(id="a", arrival=0, prompt=(("a", 6),), max_tokens=1)
    _, seen = model.step(model.arrive(model.initial(), request))
    assert list(seen["scheduled"]) == first


def test_a_long_prompt_stays_in_front_with_all_its_blocks_until_it_is_computed():
    run = ModelRun(IN_CHUNKS, block_size=4, num_blocks=9, max_num_batched_tokens=6)
    run.ask("a", 15)
    run.ask("b", 2)
    first, second, third = run.steps(3)
    assert (first["scheduled"], second["scheduled"]) == ({"a": 6}, {"a": 6})
    for seen, computed in ((first, 6), (second, 12)):
        assert (seen["kind"], seen["emitted"], seen["running"]) == ("prefill", {}, [])
        assert (seen["waiting"], seen["prefilling"]) == (["a", "b"], ["a"])
        assert (seen["blocks"], seen["computed"]) == ({"a": [1, 2, 3, 4]}, {"a": computed})
    assert [seen["slot_blocks"]["a"] for seen in (first, second, third)] == [[1, 2], [2, 3], [4]]
    assert (third["scheduled"], third["emitted"]) == ({"a": 3, "b": 2}, {"a": 1, "b": 1})
    assert (third["running"], third["waiting"], third["prefilling"]) == (["a", "b"], [], [])


def test_only_the_first_of_a_step_is_cut():
    plan = decided(queue(10, 7), IN_CHUNKS)
    assert (order(plan), ids(plan.waiting)) == ([("a", 10)], ["b"])
    assert plan.waiting[0].blocks == ()
    cut = decided(queue(17, 1), IN_CHUNKS)
    assert (order(cut), ids(cut.waiting), ids(cut.running)) == ([("a", 16)], ["a", "b"], [])


def test_nobody_is_cut_in_the_deck():
    plan = decided(queue(17, 1))
    assert (plan.scheduled, ids(plan.waiting)) == ({}, ["a", "b"])


def test_a_budget_that_is_spent_exactly_admits_nobody_else():
    for revision in REVISIONS:
        plan = decided(queue(16, 1), revision)
        assert (order(plan), ids(plan.waiting)) == ([("a", 16)], ["b"])


@each_revision
def test_the_last_token_of_the_budget_is_given(revision):
    plan = decided(queue(15, 1), revision)
    assert (order(plan), ids(plan.waiting)) == ([("a", 15), ("b", 1)], [])


def test_a_prompt_in_chunks_begins_behind_what_is_cached_and_looks_only_once():
    run = ModelRun(IN_CHUNKS, block_size=4, num_blocks=12, max_num_batched_tokens=5)
    run.ask("a", ("s", 5), max_tokens=1)
    run.step()
    run.ask("b", ("s", 4), 9)
    seen = run.steps(2)
    assert [step["scheduled"] for step in seen] == [{"b": 5}, {"b": 4}]
    assert [step["prefix_hit"] for step in seen] == [{"b": 4}, {"b": 4}]
    assert [step["computed"] for step in seen] == [{"b": 9}, {"b": 13}]


def test_those_who_run_do_not_decode_between_two_chunks():
    run = ModelRun(IN_CHUNKS, block_size=4, num_blocks=12, max_num_batched_tokens=5)
    run.ask("a", 2)
    run.step()
    run.ask("b", 12)
    assert [list(step["scheduled"]) for step in run.steps(4)] == [["b"], ["b"], ["b"], ["a", "b"]]
