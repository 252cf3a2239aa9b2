"""The decision of the code at HEAD: running first, the tail gives way, the whole sequence fits."""

from itertools import permutations

import pytest

from schedproof.model.llmservingsim.head import prompt_tokens

from .build import ModelRun, waiting


def test_who_runs_comes_first_and_the_tail_gives_way():
    run = ModelRun("head", num_blocks=4, max_num_batched_tokens=32)
    run.ask("a", 7, 9)
    run.ask("b", 7, 9)
    assert run.steps(2) == [{"a": 7, "b": 7}, {"a": 1, "b": 1}]
    step = run.step()
    assert (step["scheduled"], step["preempted"], step["waiting"]) == ({"a": 1}, ["b"], ["b"])
    assert "b" not in step["computed"]
    assert "b" not in step["blocks"]


@pytest.mark.parametrize("names", list(permutations("abc")))
def test_of_three_the_one_admitted_last_gives_way_whatever_its_name(names):
    run = ModelRun("head", num_blocks=6, max_num_batched_tokens=32)
    for name in names:
        run.ask(name, 7, 9)
    run.steps(2)
    first, second, last = names
    step = run.step()
    assert (step["preempted"], step["running"]) == ([last], [first, second])
    # Its two blocks are enough for both.
    assert step["scheduled"] == {first: 1, second: 1}


def test_nobody_is_admitted_in_a_step_that_preempts():
    run = ModelRun("head", num_blocks=4, max_num_batched_tokens=32)
    run.ask("a", 7, 9)
    run.ask("b", 7, 9)
    run.step()
    run.ask("c", 1, 1)
    run.state = run.state._replace(waiting=())
    run.step()
    run.ask("d", 1, 1)
    step = run.step()
    assert (step["preempted"], step["scheduled"], step["waiting"]) == (["b"], {"a": 1}, ["b", "d"])


def test_a_request_is_admitted_only_if_all_that_it_knows_fits():
    run = ModelRun("head", num_blocks=3, max_num_batched_tokens=4)
    run.ask("a", 4, 1)
    run.ask("b", 9, 1)
    run.ask("c", 1, 1)
    assert run.steps(2) == [{"a": 4}, {"b": 4}]
    run = ModelRun("head", num_blocks=3, max_num_batched_tokens=8)
    run.ask("a", 4, 3)
    run.ask("b", 9, 1)
    run.ask("c", 1, 1)
    # A first block for b is free, but not three; c stays behind it.
    assert run.steps(3) == [{"a": 4}, {"a": 1}, {"a": 1}]


def test_a_waiting_request_never_preempts():
    run = ModelRun("head", num_blocks=2)
    run.ask("a", 4, 5)
    run.ask("b", 8, 1)
    assert all(run.step()["preempted"] == [] for _ in range(4))


def test_who_was_preempted_is_computed_again_with_what_it_generated():
    run = ModelRun("head", num_blocks=4, max_num_batched_tokens=32)
    run.ask("a", 7, 4)
    run.ask("b", 7, 4)
    run.steps(3)
    steps = [run.step() for _ in range(3)]
    assert [step["scheduled"] for step in steps] == [{"a": 1}, {"b": 9}, {"b": 1}]
    assert [step["kind"] for step in steps] == ["decode", "prefill", "decode"]


def test_who_is_resumed_with_one_token_behind_decodes():
    run = ModelRun("head", num_blocks=5, enable_prefix_caching=True)
    run.ask("a", 7, 4)
    run.ask("b", 7, 4)
    run.steps(2)
    assert run.step()["preempted"] == ["b"]
    assert run.step()["finished"] == {"a": "length"}
    resumed = run.step()
    assert resumed["prefix_hit"] == {"b": 8}
    assert (resumed["scheduled"], resumed["kind"]) == ({"b": 1}, "decode")


def test_with_chunking_off_a_running_prompt_may_be_cut_by_the_budget():
    run = ModelRun(
        "head",
        enable_chunked_prefill=False,
        max_num_batched_tokens=5,
        long_prefill_token_threshold=4,
    )
    run.ask("a", 4, 3)
    run.ask("b", 1, 3)
    run.ask("c", 12, 1)
    assert run.steps(2) == [{"a": 4, "b": 1}, {"a": 1, "b": 1}]
    run.ask("d", 1, 1)
    assert run.steps(3) == [{"a": 1, "b": 1}, {"c": 4, "d": 1}, {"c": 4}]


def test_a_content_has_one_block_in_the_index_the_one_filled_last():
    run = ModelRun("head", num_blocks=8, enable_prefix_caching=True)
    run.ask("a", (("same", 8),), 9)
    run.ask("b", (("same", 8),), 9)
    step = run.step()
    # The last token is never taken from the cache, so the second block is filled twice.
    assert step["scheduled"] == {"a": 8, "b": 4}
    assert run.state.pool.cached[(("same", 8),)] == (step["blocks"]["b"][1],)


@pytest.mark.parametrize(("tokens", "counted"), [(1, 0), (2, 2), (3, 3)])
def test_a_chunk_counts_from_two_tokens_on(tokens, counted):
    sequence = waiting(9, computed=8, prefix_hit=4)
    assert prompt_tokens(sequence, tokens) == counted
    # The last one counts whatever its length, with what was cached.
    assert prompt_tokens(sequence._replace(computed=9), tokens) == tokens + 4
