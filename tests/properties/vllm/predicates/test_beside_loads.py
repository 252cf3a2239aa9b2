"""Rules that are not about loads, in runs with a connector: what a load changes for each of them,
and that each still finds its fault."""

from itertools import product

import pytest

from schedproof.model.observation import Step
from schedproof.properties.rules.pool import free_when_decided
from schedproof.properties.vllm.predicates import (
    admission,
    blocks,
    decision,
    in_flight,
    preemption,
    queues,
)
from schedproof.spec.catalogue import load
from schedproof.tests.mutants.faults import mutants_of
from schedproof.tests.mutants.planting import planted

from .build import book, ran, request

LOADS = {"kv_connector": True}
AHEAD = {**LOADS, "async_scheduling": True}


def landed(name="a", prompt=8, external=8, **more):
    """A request that was parked in the first step, and whose load has finished."""
    values = {"parked_since": 0, "tokens_loading": external, "slots": external, **more}
    return request(name, prompt, external=external, **values)


def before(*accounts, running="", **more):
    """The history before a step; requests that were parked hold two blocks each."""
    held = {
        account.id: (2 * n + 1, 2 * n + 2)
        for n, account in enumerate(accounts)
        if account.parked_since == 0
    }
    own = more.pop("held", held)
    history = book(*accounts, running=running, **{**LOADS, **more})
    history.step = 3
    history.last = Step(
        kind="idle", scheduled={}, parked=tuple(held), blocks=own, running=tuple(running)
    )
    return history


def test_what_was_loaded_counts_as_computed_when_the_request_joins():
    """All but its last token: that is computed, to give the next one."""
    history = before(landed())
    right = ran({"a": 1}, "a", computed={"a": 8}, emitted={"a": 1}, blocks={"a": (1, 2)})
    assert preemption.counter_wrong(history, right) is None
    assert blocks.holds_wrong_number(history, right) is None
    wrong = ran({"a": 1}, "a", computed={"a": 1}, emitted={"a": 1}, blocks={"a": (1, 2)})
    assert "make 8" in str(preemption.counter_wrong(history, wrong))
    fewer = ran({"a": 1}, "a", computed={"a": 8}, blocks={"a": (1,)})
    assert "holds 1 blocks" in str(blocks.holds_wrong_number(history, fewer))


@pytest.mark.parametrize(("fails_at", "begins"), [(None, 7), (7, 4), (3, 0), (0, 0)])
def test_what_has_failed_is_computed(fails_at, begins):
    history = before(landed(load_fails_at=fails_at), enable_prefix_caching=False)
    assert history.hit_now(ran({"a": 1}, "a"), history.live["a"]) == begins


def test_with_a_cache_it_is_shown_what_is_left_of_a_load_that_failed():
    history = before(landed(load_fails_at=4), enable_prefix_caching=True)
    assert history.hit_now(ran({"a": 4}, "a", prefix_hit={"a": 4}), history.live["a"]) == 4


def test_a_request_that_was_loaded_need_not_find_whole_blocks_nor_what_others_hold():
    other = request("b", 8, 8, 1, content=(("a", 8),))
    history = before(landed(), other, running="b", enable_prefix_caching=True)
    step = ran({"b": 1, "a": 1}, "ba", prefix_hit={"a": 7, "b": 0})
    assert blocks.hit_too_long(history, step) is None
    assert blocks.hit_missed(history, step) is None


def test_a_request_that_is_loaded_is_passed_by():
    """a waits for its load; b, behind it, is admitted, and c may not go before b."""
    loading = landed(load_steps=2, load_left=1)
    history = before(loading, request("b"), request("c"))
    assert queues.overtaken(history, ran({"b": 6}, "b", "ac")) is None
    assert "b in front of it" in str(queues.overtaken(history, ran({"c": 6}, "c", "ab")))


def test_a_request_whose_load_has_landed_goes_before_all_that_wait():
    history = before(request("b"), landed())
    assert queues.out_of_order(history, ran({"a": 1, "b": 6}, "ab")) is None
    assert "expected a, b" in str(queues.out_of_order(history, ran({"b": 6, "a": 1}, "ba")))
    assert "a in front of it" in str(queues.overtaken(history, ran({"b": 6}, "b", "a")))


def test_a_request_that_may_have_been_put_off_may_stand_anywhere():
    history = before(request("a", deferrals=1), request("b"))
    assert queues.overtaken(history, ran({"b": 6}, "b", "a")) is None
    assert queues.out_of_order(history, ran({"b": 6, "a": 4}, "ba")) is None
    assert not decision.place_is_known(history, history.live["a"])
    again = book(request("a", preemptions=1), request("b"), **LOADS)
    assert not decision.place_is_known(again, again.live["a"])
    by_priority = book(request("a", preemptions=1), policy="priority", **LOADS)
    assert decision.place_is_known(by_priority, by_priority.live["a"])


@pytest.mark.parametrize(
    ("others", "first", "waits"),
    [
        ((), {}, True),
        ((), {"external": 4}, True),
        ((), {"external": 4, "parked_since": 0}, True),
        ((landed("b"),), {}, False),
        ((landed("b", load_left=1),), {}, True),
        ((landed("b", load_left=1, load_fails_at=0),), {}, False),  # it may give blocks back
        ((request("b", deferrals=2),), {}, True),
        ((request("b", external=4, deferrals=2),), {}, True),
        ((), {"deferrals": 2}, False),
    ],
)
def test_a_head_waits_needlessly_where_nothing_stands_before_it(others, first, waits):
    history = book(request("a", **first), *others, **LOADS)
    parked = tuple(account.id for account in others if account.tokens_loading)
    history.last = Step(kind="idle", scheduled={}, parked=parked, blocks={}, running=())
    assert bool(queues.needless_wait(history, ran({}, "", "ab", blocks={}))) is waits


def test_what_comes_back_of_a_request_that_has_left_was_not_free_when_it_was_decided():
    history = book(request("a"), **LOADS)
    history.last = Step(kind="idle", scheduled={}, blocks={"gone": (1, 2)}, running=())
    assert queues.needless_wait(history, ran({}, "", "a", blocks={})) is None
    assert free_when_decided(history) == 6
    history.aborts_to_report.add("gone")
    history.answers.clear()  # as with every change
    assert free_when_decided(history) is None


def test_a_request_that_was_loaded_needs_no_more_than_it_lacks():
    """It holds two blocks, and the pool has none left."""
    history = before(landed(), num_blocks=2)
    step = ran({"a": 1}, "a", blocks={"a": (1, 2)}, free_blocks=0)
    assert admission.rest_does_not_fit(history, step) is None
    assert [needed for _, needed, _ in admission.admission_rooms(history, step)] == [0]


def test_what_a_load_takes_after_an_admission_was_free_for_it():
    """b is admitted with a first chunk; the load of a then takes the blocks that b's rest needs."""
    newcomer = request("a", 8, external=8)
    history = book(request("b", 20), newcomer, free=6, num_blocks=6, **LOADS)
    step = ran(
        {"b": 10}, "b", "a", parked=("a",), blocks={"b": (1, 2, 3), "a": (4, 5)}, free_blocks=1
    )
    assert admission.rest_does_not_fit(history, step) is None
    history.live["a"].parked_since = 0
    assert "the rest needs 2 blocks" in str(admission.rest_does_not_fit(history, step))


def test_a_round_ends_at_a_request_that_lacks_blocks_only_where_they_may_be_written():
    first, other = request("a", 4, 4, 1, tokens_in_flight=0), request("b", 6, 6, 1)
    step = ran({}, "ab")
    assert "a, b not scheduled" in str(
        queues.passed_by(book(first, other, running="ab", **LOADS), step)
    )
    assert queues.passed_by(book(first, other, running="ab", **AHEAD), step) is None
    alone = book(other, running="b", **AHEAD)
    assert "b not scheduled" in str(queues.passed_by(alone, ran({}, "b")))


def test_behind_one_that_lacks_blocks_no_other_must_have_a_turn():
    done = request("c", 4, 11, 7, tokens_in_flight=1)
    first = request("a", 4, 4, 1)
    assert (
        in_flight.scheduled_for_nothing(book(done, first, running="ca", **AHEAD), ran({}, "ca"))
        is None
    )


FOUND_BESIDE_LOADS = {
    *("V1CP-R05", "V1-R14", "V1-I4", "V1-R04", "V1CP-R02", "V1-R01", "V1-R09", "V1-R07"),
    *("V1-R05", "V1CP-R13", "V1CP-R17", "V1-I1", "V1-P01", "V1CP-R22", "ALL-R08", "V1-R12"),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(FOUND_BESIDE_LOADS))
def test_a_rule_finds_one_of_its_mutants_in_runs_with_a_connector(rule):
    rules = [entry for entry in load("vllm") if entry.id == rule]
    faults = [fault for fault in mutants_of("vllm") if fault.rule == rule]
    for fault, seed in product(faults, range(2)):
        with planted(fault) as target:
            from schedproof.properties.search.run import run_search
            from schedproof.properties.search.state import Search, SearchOptions

            options = SearchOptions(
                target, "vllm", "documented", rules, "small", fixed=LOADS, max_steps=100_000
            )
            if run_search(Search(options), 300, seed, 0):
                return
    pytest.fail(f"no mutant of {rule} is found")
