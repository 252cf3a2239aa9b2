"""The batch's size and each request's tokens, by example."""

import pytest

from schedproof.properties.llmservingsim.predicates import budget
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.tests.mutants.faults import Edit, Fault
from schedproof.tests.mutants.planting import planted

from .build import book, ran, request


@pytest.mark.parametrize(("slots", "breaks"), [(3, False), (2, True), (0, False), (1, True)])
def test_a_batch_has_no_more_requests_than_slots(slots, breaks):
    history = book(*(request(name) for name in "abc"), max_num_seqs=slots)
    reported = budget.batch_too_large(history, ran(dict.fromkeys("abc", 1)))
    assert (reported is not None) is breaks


def test_the_cap_is_at_stake_when_somebody_finds_the_batch_full():
    history = book(*(request(name) for name in "abc"), max_num_seqs=2)
    assert budget.batch_is_full(history, ran({"a": 1, "b": 1}))
    assert not budget.batch_is_full(history, ran({"a": 1}))
    assert not budget.batch_is_full(book(request("a"), max_num_seqs=0), ran({"a": 1}))


@pytest.mark.parametrize(("tokens", "breaks"), [(1, False), (2, True)])
def test_a_decode_is_one_token(tokens, breaks):
    history = book(request("a", 6, 6, 1), running="a")
    assert (budget.decode_takes_more(history, ran({"a": tokens})) is not None) is breaks


@pytest.mark.parametrize(
    ("changes", "tokens", "breaks"),
    [
        ({}, 6, False),
        ({}, 5, True),
        ({"long_prefill_token_threshold": 4}, 4, False),
        ({"long_prefill_token_threshold": 4}, 6, True),
        ({"max_num_batched_tokens": 3}, 3, False),
        ({"max_num_batched_tokens": 3}, 2, True),
        # With chunking off the threshold may cut.
        ({"long_prefill_token_threshold": 4, "enable_chunked_prefill": False}, 4, False),
    ],
)
@pytest.mark.parametrize("revision", ["documented", "head"])
def test_who_starts_computes_the_least_of_need_threshold_and_budget(
    revision, changes, tokens, breaks
):
    history = book(request("a"), revision=revision, **changes)
    assert (budget.start_wrong(history, ran({"a": tokens}, "a")) is not None) is breaks


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_a_request_that_starts_computes_a_token(revision):
    history = book(request("a", 10), request("b"), revision=revision)
    reported = budget.start_wrong(history, ran({"a": 10, "b": 0}, "ab"))
    assert reported is not None
    assert reported.startswith("b computes 0 tokens")


@pytest.mark.parametrize(("revision", "breaks"), [("documented", False), ("head", True)])
def test_with_chunking_off_the_page_leaves_open_whether_the_budget_cuts_a_start(revision, breaks):
    off = {"max_num_batched_tokens": 3, "enable_chunked_prefill": False}
    history = book(request("a"), revision=revision, **off)
    assert (budget.start_wrong(history, ran({"a": 3}, "a")) is not None) is breaks


def test_what_is_cached_is_not_computed_again():
    history = book(request("a"))
    assert budget.start_wrong(history, ran({"a": 2}, "a", prefix_hit={"a": 4})) is None
    assert budget.start_wrong(history, ran({"a": 6}, "a", prefix_hit={"a": 4})) == (
        "a computes 6 tokens; it needs 2, at most 10 a request, 10 left of the budget"
    )
    assert budget.start_is_cut_or_cached(history, ran({"a": 2}, "a", prefix_hit={"a": 4}))


@pytest.mark.parametrize(
    ("ahead", "tokens", "breaks"), [(7, 3, False), (5, 4, False), (5, 3, True)]
)
def test_a_prompt_goes_on_with_all_that_is_left_of_it_and_of_the_budget(ahead, tokens, breaks):
    history = book(request("a", ahead), request("b", 8, 4), running="ab")
    assert (budget.rest_wrong(history, ran({"a": ahead, "b": tokens})) is not None) is breaks


@pytest.mark.parametrize("revision", ["documented", "head"])
def test_with_chunking_off_the_budget_may_cut_the_rest_of_a_prompt(revision):
    off = {"enable_chunked_prefill": False, "long_prefill_token_threshold": 4}
    history = book(
        request("a", 7, 7, 1), request("b", 16, 4), running="ab", revision=revision, **off
    )
    history.config["max_num_batched_tokens"] = 4
    assert budget.rest_wrong(history, ran({"a": 1, "b": 3})) is None


@pytest.mark.slow
def test_a_scheduler_that_cuts_prompts_to_the_budget_with_chunking_off_keeps_the_page():
    refuses = "    if not config.enable_chunked_prefill and wanted > budget:\n        return 0\n"
    cuts = Fault(
        *("llmservingsim", "cuts prompts", (Edit("llmservingsim/documented.py", refuses, ""),)),
        revision="documented",
        target="Release",
        intact_model=True,
    )
    with planted(cuts) as target:
        asked = (target, "llmservingsim", "documented", load("llmservingsim"), "small")
        search = Search(SearchOptions(*asked))
        assert not run_search(search, 200, 0, 0), search.failure
