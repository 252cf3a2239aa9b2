"""Drafts and their slots, by example: three drafts after each token."""

import pytest

from schedproof.properties.vllm.predicates import blocks, budget, preemption
from schedproof.properties.vllm.predicates import in_flight as speculation

from .build import book, ran, request

DRAFTS = {"num_speculative_tokens": 3}


def drafting(*accepted, computed=6):
    """Its prompt and a token are known; three drafts are proposed."""
    return request("a", 6, computed, 1, drafted=3, slots=6, accepted=accepted)


def before(account, **changes):
    return book(account, running="a", **DRAFTS, **changes)


@pytest.mark.parametrize(("tokens", "breaks"), [(1, False), (4, False), (5, True)])
def test_a_request_may_compute_its_drafts_and_no_more(tokens, breaks):
    reported = budget.beyond_known(before(drafting()), ran({"a": tokens}))
    assert (reported is not None) is breaks


def test_a_request_that_lost_its_drafts_computes_the_known_ones():
    account = request("a", 6, 6, 1)
    assert budget.beyond_known(before(account), ran({"a": 2})) is not None


@pytest.mark.parametrize(
    ("accepted", "tokens", "emitted", "breaks"),
    [
        *(((2,), 4, 3, False), ((2,), 4, 2, True), ((2,), 4, 4, True)),
        *(((3,), 3, 3, False), ((0,), 4, 1, False), ((0,), 4, 2, True)),
    ],
)
def test_the_right_drafts_come_out_and_one_token_more(accepted, tokens, emitted, breaks):
    step = ran({"a": tokens}, emitted={"a": emitted})
    reported = speculation.verified_wrongly(before(drafting(*accepted)), step)
    assert (reported is not None) is breaks


def test_a_recorded_run_without_the_number_of_right_drafts_is_not_judged():
    step = ran({"a": 4}, emitted={"a": 3})
    assert speculation.verified_wrongly(before(drafting()), step) is None


def test_some_right_and_some_wrong_is_what_counts():
    step = ran({"a": 4})
    assert speculation.some_right_some_wrong(before(drafting(2)), step)
    assert not speculation.some_right_some_wrong(before(drafting(3)), step)
    assert not speculation.some_right_some_wrong(before(drafting(0)), step)


def test_wrong_drafts_do_not_count_as_computed():
    step = {"emitted": {"a": 2}}
    history = before(drafting(1))
    assert preemption.counter_wrong(history, ran({"a": 4}, computed={"a": 8}, **step)) is None
    assert preemption.counter_wrong(history, ran({"a": 4}, computed={"a": 10}, **step)) is not None


def test_where_no_token_is_shown_the_counter_after_drafts_is_not_judged():
    step = ran({"a": 4}, computed={"a": 8}, emitted=None)
    assert preemption.counter_wrong(before(drafting(1)), step) is None


@pytest.mark.parametrize(("held", "breaks"), [(2, True), (3, False), (4, True)])
def test_the_blocks_that_drafts_took_stay(held, breaks):
    step = ran(
        {"a": 4}, emitted={"a": 1}, computed={"a": 7}, blocks={"a": tuple(range(1, held + 1))}
    )
    assert (blocks.holds_wrong_number(before(drafting(0)), step) is not None) is breaks


@pytest.mark.parametrize(("held", "breaks"), [(3, True), (4, False)])
def test_a_running_request_has_blocks_for_its_lookahead(held, breaks):
    history = before(drafting(0), num_lookahead_tokens=3, enable_prefix_caching=False)
    step = ran({"a": 4}, blocks={"a": tuple(range(1, held + 1))})
    assert (speculation.lookahead_without_block(history, step) is not None) is breaks
    assert speculation.lookahead_needs_block(history, step)


@pytest.mark.parametrize("held", [1, 2])
def test_with_its_first_chunk_a_request_may_get_its_lookahead(held):
    history = book(request("a", 3), num_lookahead_tokens=3, enable_prefix_caching=False, **DRAFTS)
    step = ran({"a": 3}, computed={"a": 3}, blocks={"a": tuple(range(1, held + 1))})
    assert blocks.holds_wrong_number(history, step) is None
    assert speculation.lookahead_without_block(history, step) is None


@pytest.mark.parametrize(("held", "breaks"), [(1, False), (2, False), (3, True)])
def test_a_padded_request_may_get_its_lookahead_behind_the_padding_and_keeps_it(held, breaks):
    history = book(request("a", 1), num_lookahead_tokens=3, enable_prefix_caching=False, **DRAFTS)
    shown = {"computed": {"a": 1}, "blocks": {"a": tuple(range(1, held + 1))}}
    step = ran({"a": 4}, "a", emitted={"a": 1}, **shown)
    assert (blocks.holds_wrong_number(history, step) is not None) is breaks
    history.observe(step)
    later = ran({}, "a", emitted={}, **shown)
    assert (blocks.holds_wrong_number(history, later) is not None) is breaks


def test_what_a_request_that_is_padded_and_ends_at_once_found_in_the_cache_is_not_known():
    history = book(request("a", 1), **DRAFTS)
    step = ran({"a": 4}, emitted={"a": 1}, finished={"a": "eos"}, prefix_hit={})
    assert history.hit_now(step, history.live["a"]) is None
    assert budget.beyond_known(history, step) is None


@pytest.mark.parametrize(
    ("revision", "tokens", "breaks"),
    [("documented", 3, True), ("0.25", 3, False), ("0.25", 2, True), ("0.25", 4, True)],
)
def test_where_the_release_says_so_one_that_joins_decodes_is_padded_whole(revision, tokens, breaks):
    accounts = (request("a", 6, 6, 1, drafted=2), request("b", 1))
    history = book(*accounts, running="a", revision=revision, num_speculative_tokens=2)
    step = ran({"a": 3, "b": tokens}, prefix_hit={"a": 0, "b": 0})
    assert (budget.beyond_known(history, step) is not None) is breaks
    assert (budget.waiting_clamp(history, step) is not None) is breaks


def test_beside_a_prefill_and_further_behind_nobody_is_padded():
    drafts = {"num_speculative_tokens": 2, "revision": "0.33"}
    prefills = book(request("a", 9, 4), request("b", 1), running="a", **drafts)
    assert budget.beyond_known(prefills, ran({"a": 5, "b": 3}, prefix_hit={"b": 0})) is not None
    decodes = book(request("a", 6, 6, 1, drafted=2), request("b", 2), running="a", **drafts)
    assert budget.beyond_known(decodes, ran({"a": 3, "b": 4}, prefix_hit={"b": 0})) is not None
    running = book(request("b", 6, 6, 1), running="b", **drafts)
    assert budget.beyond_known(running, ran({"b": 3})) is not None


EAGLE = {"num_speculative_tokens": 3, "num_lookahead_tokens": 3}


@pytest.mark.parametrize(
    ("shared", "hit", "breaks", "decides"),
    [(8, 8, True, True), (8, 4, False, True), (9, 8, False, False), (7, 4, False, False)],
)
def test_a_hit_with_eagle_ends_before_the_same_token(shared, hit, breaks, decides):
    other = request("b", 12, 12, 1, content=(("p", shared), ("b", 12 - shared)))
    newcomer = request("a", 12, content=(("p", shared), ("a", 12 - shared)))
    history = book(other, newcomer, running="b", **EAGLE)
    step = ran({"a": 12 - hit, "b": 1}, "ba", prefix_hit={"a": hit, "b": 0})
    broken = blocks.hit_with_another_next_token(history, step)
    assert broken == (
        "a takes 8 tokens from the cache, but no request had the same token after them; the "
        "drafter may use at most 7 of them"
        if breaks
        else None
    )
    assert blocks.next_token_decides(history, step) is decides


@pytest.mark.parametrize(("hit", "breaks"), [(0, True), (4, False), (8, False)])
def test_with_eagle_a_hit_may_lack_the_last_shared_block(hit, breaks):
    other = request("b", 12, 12, 1, content=(("p", 12),))
    history = book(other, request("a", 12, content=(("p", 12),)), running="b", **EAGLE)
    step = ran({"a": 12 - hit, "b": 1}, "ba", prefix_hit={"a": hit, "b": 0})
    assert (blocks.hit_missed(history, step) is not None) is breaks
