"""The clamp, the budget and the token at the end, by example."""

import pytest

from schedproof.properties.vllm.predicates import budget

from .build import book, ran, request


def test_the_tokens_of_a_step_are_within_the_budget():
    history = book(request("a", 20), request("b", 20))
    assert budget.budget_exceeded(history, ran({"a": 6, "b": 4})) is None
    reported = budget.budget_exceeded(history, ran({"a": 6, "b": 5}))
    assert reported == "11 tokens scheduled > max_num_batched_tokens 10"
    assert budget.budget_binds(history, ran({}))
    assert not budget.budget_binds(book(request("a", 6)), ran({}))


@pytest.mark.parametrize(("tokens", "breaks"), [(0, True), (1, False), (6, False), (7, True)])
def test_nobody_computes_nothing_or_what_is_not_known(tokens, breaks):
    reported = budget.beyond_known(book(request("a", 6)), ran({"a": tokens}, prefix_hit={"a": 0}))
    assert (reported is not None) is breaks


def test_what_was_cached_is_not_computed_again():
    history = book(request("a", 6))
    assert budget.beyond_known(history, ran({"a": 2}, prefix_hit={"a": 4})) is None
    reported = budget.beyond_known(history, ran({"a": 3}, prefix_hit={"a": 4}))
    assert reported == "a computes 3 tokens, 2 are known and not computed"


def test_the_threshold_caps_everyone_and_zero_nobody():
    step = ran({"a": 4, "b": 5})
    capped = book(request("a", 9), request("b", 9), long_prefill_token_threshold=4)
    assert "b computes 5 tokens" in (budget.threshold_exceeded(capped, step) or "")
    assert budget.threshold_exceeded(book(request("a", 9)), step) is None
    assert budget.threshold_binds(capped, step)


@pytest.mark.parametrize(
    ("tokens", "breaks"),
    [({"a": 1, "b": 9}, False), ({"a": 1, "b": 8}, True), ({"a": 2, "b": 8}, True)],
)
def test_running_requests_take_the_budget_in_their_order(tokens, breaks):
    history = book(request("a", 6, 6, 1), request("b", 20, 4), running="ab")
    assert (budget.running_clamp(history, ran(tokens)) is not None) is breaks
    assert budget.waiting_clamp(history, ran(tokens)) is None


def test_newcomers_take_what_is_left():
    history = book(request("a", 6, 6, 1), request("b", 20), running="a")
    assert budget.waiting_clamp(history, ran({"a": 1, "b": 9})) is None
    reported = budget.waiting_clamp(history, ran({"a": 1, "b": 5}))
    assert reported is not None
    assert "9 left of the budget: min is 9" in reported


def test_nobody_is_accused_where_a_victim_gave_its_share_back():
    accounts = (request("a", 20, 4, priority=9), request("b", 20, 4))
    history = book(*accounts, running="ab", policy="priority")
    assert budget.running_clamp(history, ran({"b": 4}, preempted=("a",))) is None
    assert budget.running_clamp(history, ran({"b": 4})) is not None


def test_without_chunking_the_budget_does_not_cut_a_prompt():
    history = book(request("a", 9), request("b", 9), enable_chunked_prefill=False)
    assert budget.chunked_although_off(history, ran({"a": 9})) is None
    assert budget.prompt_too_long_for_now(history, ran({"a": 9}))
    reported = budget.chunked_although_off(history, ran({"a": 9, "b": 1}))
    assert reported == "b starts with 1 of 9 tokens, although prompts are not chunked"


def test_without_chunking_the_threshold_still_cuts():
    history = book(request("a", 9), enable_chunked_prefill=False, long_prefill_token_threshold=4)
    assert budget.chunked_although_off(history, ran({"a": 4})) is None


@pytest.mark.parametrize(
    ("tokens", "emitted", "breaks"), [(6, 1, False), (6, 0, True), (5, 0, False), (5, 1, True)]
)
def test_a_token_comes_out_of_whoever_has_caught_up(tokens, emitted, breaks):
    step = ran({"a": tokens}, emitted={"a": emitted} if emitted else {})
    assert (budget.emission_wrong(book(request("a", 6)), step) is not None) is breaks


def test_a_preempted_request_emits_when_its_answer_is_computed_again_too():
    history = book(request("a", 6, 0, 3, regenerated=3, preemptions=1))
    assert budget.emission_wrong(history, ran({"a": 6})) is None
    assert budget.emission_wrong(history, ran({"a": 6}, emitted={"a": 1})) is not None
    assert budget.emission_wrong(history, ran({"a": 9}, emitted={"a": 1})) is None
