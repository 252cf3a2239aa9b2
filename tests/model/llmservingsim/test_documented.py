"""The page's decision: one queue, the cap, and the promise of blocks."""

import pytest

from schedproof.model.llmservingsim.documented import prompt_tokens

from .build import ModelRun, waiting


def test_8000_tokens_at_a_threshold_of_1024_take_8_steps():
    run = ModelRun("documented", long_prefill_token_threshold=1024, max_num_batched_tokens=2048)
    run.ask("a", 8000, 1)
    assert run.steps(9) == [*7 * [{"a": 1024}], {"a": 832}, {}]


def test_1000_tokens_with_600_of_them_cached_take_400_of_the_budget_and_report_1000():
    run = ModelRun(
        "documented", block_size=8, enable_prefix_caching=True, max_num_batched_tokens=2048
    )
    run.ask("first", (("system", 600),), 1)
    run.step()
    run.ask("a", (("system", 600), ("a", 400)), 2)
    assert run.schedule() == {"a": 400}
    assert run.state.running[0].prefix_hit == 600
    assert run.done(1).prompt_throughput == 1000


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_64_decodes_and_a_chunk_of_1500_are_1564_tokens(revision):
    run = ModelRun(revision, max_num_seqs=0, max_num_batched_tokens=2048)
    for number in range(64):
        run.ask(f"d{number}", 1, 9)
    run.step()
    run.ask("long", 1500, 1)
    step = run.step()
    assert sum(step["scheduled"].values()) == 1564
    assert step["kind"] == "mixed"


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_max_num_seqs_0_bounds_nothing(revision):
    run = ModelRun(revision, max_num_seqs=0, max_num_batched_tokens=2048)
    for number in range(200):
        run.ask(f"r{number}", 3)
    assert len(run.step()["scheduled"]) == 200


def test_a_batch_has_at_most_max_num_seqs_requests_in_order_of_arrival():
    run = ModelRun("documented", max_num_seqs=2)
    for name in "abc":
        run.ask(name, 3, 2)
    assert run.steps(4) == [{"a": 3, "b": 3}, {"a": 1, "b": 1}, {"c": 3}, {"c": 1}]


def test_the_cap_is_the_least_of_budget_threshold_and_need():
    run = ModelRun("documented", max_num_batched_tokens=10, long_prefill_token_threshold=6)
    run.ask("a", 8, 9)
    run.ask("b", 9, 9)
    run.ask("c", 3, 9)
    # Need 2 and decode, 1 of the rest; the threshold; what the budget leaves.
    assert run.steps(3) == [{"a": 6, "b": 4}, {"a": 2, "b": 5, "c": 3}, {"a": 1, "b": 1, "c": 1}]


def test_a_prefill_and_a_decode_share_one_queue():
    run = ModelRun("documented", max_num_batched_tokens=4)
    run.ask("a", 2, 3)
    run.ask("b", 6, 2)
    assert run.steps(4) == [{"a": 2, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 1}, {"b": 1}]


def test_prioritised_prefills_come_first_and_decodes_fill_the_rest():
    run = ModelRun("documented", max_num_batched_tokens=4, prioritize_prefill=True)
    run.ask("a", 2, 3)
    run.ask("b", 6, 2)
    assert run.steps(3) == [{"a": 2, "b": 2}, {"b": 4}, {"a": 1, "b": 1}]
    run = ModelRun("documented", max_num_batched_tokens=8, prioritize_prefill=True)
    run.ask("a", 2, 3)
    run.step()
    run.ask("b", 6, 2)
    assert list(run.step()["scheduled"].items()) == [("b", 6), ("a", 1)]


def test_with_chunking_off_a_prompt_waits_until_the_budget_has_room_and_others_pass():
    run = ModelRun("documented", enable_chunked_prefill=False, max_num_batched_tokens=8)
    run.ask("a", 6, 2)
    run.ask("b", 5, 2)
    run.ask("c", 2, 2)
    assert run.steps(3) == [{"a": 6, "c": 2}, {"a": 1, "b": 5, "c": 1}, {"b": 1}]


def test_with_chunking_off_the_threshold_still_cuts():
    run = ModelRun(
        "documented",
        enable_chunked_prefill=False,
        max_num_batched_tokens=8,
        long_prefill_token_threshold=4,
    )
    run.ask("a", 6, 2)
    assert run.steps(2) == [{"a": 4}, {"a": 2}]


def test_a_request_starts_only_once_its_last_token_has_room_and_nobody_starts_before_it():
    run = ModelRun("documented", num_blocks=4)
    run.ask("a", 4, 5)  # two blocks until its last token
    run.ask("b", 4, 9)  # three
    run.ask("c", 1, 1)  # one, which would be free
    first = run.step()
    assert first["scheduled"] == {"a": 4}
    assert (first["free_blocks"], first["reserved_blocks"]) == (3, 1)
    assert run.steps(5)[3:] == [{"a": 1}, {"b": 4, "c": 1}]


@pytest.mark.parametrize(("max_tokens", "starts"), [(5, True), (6, False)])
def test_all_but_the_last_token_of_who_starts_has_room(max_tokens, starts):
    """Three blocks are free beside a, one of them promised to it: two hold eight tokens."""
    run = ModelRun("documented", num_blocks=4)
    run.ask("a", 4, 5)
    run.ask("b", 4, max_tokens)
    assert ("b" in run.step()["scheduled"]) is starts


def test_nobody_is_ever_preempted():
    run = ModelRun("documented", num_blocks=3)
    run.ask("a", 4, 5)
    run.ask("b", 4, 5)
    while run.state.waiting or run.state.running:
        assert run.step()["preempted"] == []


def test_a_cached_block_that_nobody_holds_is_needed_as_well():
    run = ModelRun("documented", num_blocks=3, enable_prefix_caching=True)
    run.ask("first", 8, 1)
    run.step()
    run.ask("b", (("b", 5),), 1)
    run.ask("again", (("first", 8),), 1)
    # Two blocks are taken: the third is cached and free, but not one to be had beside it.
    step = run.step()
    assert step["scheduled"] == {"b": 5}
    assert run.step()["scheduled"]["again"] in (4, 8)


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_a_chunk_of_any_length_counts(tokens):
    sequence = waiting(9, computed=8, prefix_hit=4)
    assert prompt_tokens(sequence, tokens) == tokens
    assert prompt_tokens(sequence._replace(computed=9), tokens) == tokens + 4
    assert prompt_tokens(sequence._replace(computed=9, generated=1), tokens) == 0
