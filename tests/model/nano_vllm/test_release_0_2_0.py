"""Prompts in chunks, which the deck does not have. Block 4, budget 16."""

import pytest

from .build import IN_CHUNKS, REVISIONS, Run, decided, ids, order, queue

each_revision = pytest.mark.parametrize("revision", REVISIONS)


def test_a_long_prompt_stays_in_front_with_all_its_blocks_until_it_is_computed():
    run = Run(IN_CHUNKS, block_size=4, num_blocks=9, max_num_batched_tokens=6)
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
    run = Run(IN_CHUNKS, block_size=4, num_blocks=12, max_num_batched_tokens=5)
    run.ask("a", ("s", 5), max_tokens=1)
    run.step()
    run.ask("b", ("s", 4), 9)
    seen = run.steps(2)
    assert [step["scheduled"] for step in seen] == [{"b": 5}, {"b": 4}]
    assert [step["prefix_hit"] for step in seen] == [{"b": 4}, {"b": 4}]
    assert [step["computed"] for step in seen] == [{"b": 9}, {"b": 13}]


def test_those_who_run_do_not_decode_between_two_chunks():
    run = Run(IN_CHUNKS, block_size=4, num_blocks=12, max_num_batched_tokens=5)
    run.ask("a", 2)
    run.step()
    run.ask("b", 12)
    assert [list(step["scheduled"]) for step in run.steps(4)] == [["b"], ["b"], ["b"], ["a", "b"]]
