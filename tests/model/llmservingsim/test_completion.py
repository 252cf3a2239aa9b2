"""Batches in flight: how many there are, when tokens count, and what a batch hands back."""

import pytest

from schedproof.model.llmservingsim.scheduler import Done

from .build import ModelRun


@pytest.mark.parametrize("revision", ["documented", "head"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_at_most_pp_size_batches_are_on_their_way(revision, depth):
    run = ModelRun(revision, pp_size=depth, max_num_batched_tokens=2)
    for name in "abcd":
        run.ask(name, 2, 2)
    batches = [run.schedule() for _ in range(depth + 1)]
    assert batches == [{name: 2} for name in "abcd"[:depth]] + [None]
    run.done(0)
    assert run.schedule() is not None


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_a_batch_that_is_not_on_its_way_changes_nothing(revision):
    run = ModelRun(revision)
    run.ask("a", 4, 2)
    run.schedule()
    before = run.state
    assert run.done(7) == Done(0, 0, ())
    assert run.state == before
    assert run.done(0).decode_throughput == 1
    assert run.done(0) == Done()


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_a_batch_is_through_once_whatever_is_on_its_way_behind_it(revision):
    run = ModelRun(revision, pp_size=2, max_num_batched_tokens=2)
    run.ask("a", 2, 2)
    run.ask("b", 2, 2)
    assert [run.schedule(), run.schedule()] == [{"a": 2}, {"b": 2}]
    assert run.done(0).emitted == ("a",)
    assert run.done(0) == Done()
    assert run.done(1).emitted == ("b",)


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_which_batch_is_through_is_told_by_its_number_not_by_its_place(revision):
    run = ModelRun(revision, pp_size=3, max_num_batched_tokens=2)
    for name in "abc":
        run.ask(name, 2, 2)
        run.schedule()
    assert run.done(1).emitted == ("b",)
    assert [batch.number for batch in run.state.inflight] == [0, 2]
    assert [run.done(number).emitted for number in (2, 0)] == [("c",), ("a",)]


def test_by_the_page_tokens_count_once_they_are_computed():
    run = ModelRun("documented", pp_size=2, max_num_batched_tokens=4)
    run.ask("a", 8, 2)
    assert run.schedule() == {"a": 4}
    assert run.state.running[0].computed == 0
    # What a computes next is not known before its batch is through.
    assert run.schedule() is None
    run.done(0)
    assert run.state.running[0].computed == 4


def test_at_head_tokens_count_when_they_are_scheduled_so_none_is_scheduled_twice():
    run = ModelRun("head", pp_size=2, max_num_batched_tokens=4)
    run.ask("a", 8, 2)
    assert run.schedule() == {"a": 4}
    assert run.state.running[0].computed == 4
    assert run.schedule() == {"a": 4}
    assert run.state.running[0].computed == 8


def test_at_head_the_first_token_comes_out_with_the_first_of_two_chunks_on_their_way():
    run = ModelRun("head", pp_size=2, max_num_batched_tokens=4)
    run.ask("a", 8, 2)
    run.schedule()
    run.schedule()
    assert run.done(0) == Done(4, 1, (), ("a",))
    assert run.done(1) == Done(4, 0, (), ())


def test_at_head_a_request_may_end_before_the_rest_of_its_prompt_is_through():
    run = ModelRun("head", pp_size=2, max_num_batched_tokens=4, num_blocks=2)
    run.ask("a", 8, 1)
    run.schedule()
    run.schedule()
    assert run.done(0).finished == ("a",)
    # Its blocks are free while the batch that fills the second one is still in flight.
    assert run.model.step(run.state)[1]["free_blocks"] == 2
    assert len(run.state.inflight) == 1
    assert run.done(1) == Done()


def test_by_the_page_a_request_ends_once_its_prompt_is_through():
    run = ModelRun("documented", pp_size=2, max_num_batched_tokens=4, num_blocks=2)
    run.ask("a", 8, 1)
    run.schedule()
    assert run.schedule() is None
    assert run.done(0).finished == ()
    run.schedule()
    assert run.done(1).finished == ("a",)


def test_at_head_a_request_with_all_it_knows_on_its_way_is_passed_over():
    run = ModelRun("head", pp_size=3, max_num_batched_tokens=4)
    run.ask("a", 3, 3)
    assert run.schedule() == {"a": 3}
    run.ask("b", 3, 3)
    assert run.schedule() == {"b": 3}
    assert run.schedule() is None
    # Nothing counts as computed of who was passed over.
    assert [sequence.computed for sequence in run.state.running] == [3, 3]


def test_both_throughputs_and_the_finished_are_handed_back():
    run = ModelRun("documented")
    run.ask("a", 3, 1)
    run.ask("b", 5, 2)
    run.schedule()
    assert run.done(0) == Done(8, 2, ("a",), ("a", "b"))
    run.schedule()
    assert run.done(1) == Done(0, 1, ("b",), ("b",))


def test_the_prompt_throughput_counts_every_token_of_a_prompt_once_by_the_page():
    run = ModelRun("documented", max_num_batched_tokens=1)
    run.ask("a", 3, 2)
    reported = []
    for number in range(4):
        run.schedule()
        reported.append(run.done(number)[:2])
    assert reported == [(1, 0), (1, 0), (1, 1), (0, 1)]


def test_at_head_a_chunk_of_one_token_is_not_counted():
    run = ModelRun("head", max_num_batched_tokens=1)
    run.ask("a", 3, 2)
    reported = []
    for number in range(4):
        run.schedule()
        reported.append(run.done(number)[:2])
    assert reported == [(0, 0), (0, 0), (1, 1), (0, 1)]


def test_at_head_a_hit_counts_once_when_the_prompt_is_complete():
    run = ModelRun("head", enable_prefix_caching=True, max_num_batched_tokens=8)
    run.ask("first", (("system", 8),), 1)
    run.step()
    run.ask("a", (("system", 8), ("a", 12)), 2)
    assert run.schedule() == {"a": 8}
    assert run.done(1).prompt_throughput == 8
    assert run.schedule() == {"a": 4}
    assert run.done(2).prompt_throughput == 4 + 8


def test_at_head_what_is_computed_again_counts_as_prompt_again():
    run = ModelRun("head", num_blocks=4, max_num_batched_tokens=32)
    run.ask("a", 7, 4)
    run.ask("b", 7, 4)
    reported = []
    for number in range(6):
        run.schedule()
        reported.append(run.done(number)[:2])
    assert reported == [(14, 2), (0, 2), (0, 1), (0, 1), (9, 1), (0, 1)]


def test_who_was_aborted_meanwhile_is_left_out():
    run = ModelRun("documented", num_blocks=4)
    run.ask("a", 3, 2)
    run.ask("b", 3, 2)
    step = run.step("a")
    assert (step["emitted"], step["finished"]) == ({"b": 1}, {"a": "aborted"})
    assert step["running"] == ["b"]
    assert step["free_blocks"] == 3
