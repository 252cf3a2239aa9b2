"""Which request sits out, for how long, and which must not prefill meanwhile."""

import pytest

from ...build import (
    broken,
    decode,
    decoding,
    exercised,
    history,
    idle,
    prefill,
    prefilling,
    waiting,
)

RELEASE = "2.5.2"


def book(*accounts, paused=(), **changes):
    """In front of a step after one that listed these requests as paused, in this order."""
    running = tuple(account.id for account in accounts if account.id not in paused)
    shown = changes.pop("running", running)
    return history(
        *accounts,
        revision=RELEASE,
        last=decode(*shown, running=shown, paused=paused),
        paused=frozenset(paused),
        **changes,
    )


def sits_out(name, computed, steps=1, **changes):
    return decoding(name, computed, paused_steps=steps, **changes)


# SPY-R52


@pytest.mark.parametrize("newcomer", [waiting("c"), prefilling("c", 8, 12)], ids=["new", "ongoing"])
def test_nobody_prefills_while_somebody_is_paused(newcomer):
    held_back = book(decoding("a", 8), sits_out("b", 8), newcomer, paused=("b",))
    assert broken("SPY-R52", held_back, prefill("c", 4)) == "c prefills while b is paused"
    assert broken("SPY-R52", held_back, decode("a")) is None
    assert exercised("SPY-R52", held_back, decode("a"))


def test_who_was_paused_and_has_left_holds_nobody_back():
    gone = book(decoding("a", 8), sits_out("b", 8, ended="aborted"), waiting("c"), paused=("b",))
    assert broken("SPY-R52", gone, prefill("c", 5)) is None
    assert not exercised("SPY-R52", gone, prefill("c", 5))


def test_prefill_beside_the_paused_is_at_stake_only_if_both_are_there():
    nobody_new = book(decoding("a", 8), sits_out("b", 8), paused=("b",))
    assert not exercised("SPY-R52", nobody_new, decode("a"))
    nobody_paused = book(decoding("a", 8), waiting("c"))
    assert not exercised("SPY-R52", nobody_paused, decode("a"))
    assert broken("SPY-R52", nobody_paused, prefill("c", 5)) is None
    first = history(waiting("c"), revision=RELEASE)
    assert broken("SPY-R52", first, prefill("c", 5)) is None


# SPY-R51: two rows of 12 tokens are 24, three are 36


def three(**changes):
    all_requests = (decoding("a", 11), decoding("b", 11, prompt=10), decoding("c", 11, prompt=9))
    return book(*all_requests, **({"max_batch_tkv": 24} | changes))


def test_those_decode_who_fit_and_have_generated_least():
    assert broken("SPY-R51", three(), decode("a", "b")) is None
    assert exercised("SPY-R51", three(), decode("a", "b"))
    assert broken("SPY-R51", three(), decode("a", "c")) == (
        "b should decode and c should be paused"
    )
    assert broken("SPY-R51", three(), decode("a")) == "b should decode"
    assert broken("SPY-R51", three(), decode("a", "b", "c")) == "c should be paused"
    assert broken("SPY-R51", three(), idle()) == "a, b should decode"


def test_the_limit_itself_is_still_within_it():
    assert broken("SPY-R51", three(max_batch_tkv=36), decode("a", "b", "c")) is None
    assert not exercised("SPY-R51", three(max_batch_tkv=36), decode("a", "b", "c"))
    assert broken("SPY-R51", three(max_batch_tkv=35), decode("a", "b", "c")) is not None
    assert exercised("SPY-R51", three(max_batch_tkv=35), decode("a", "b"))


def test_with_long_outputs_first_those_decode_who_have_generated_most():
    assert broken("SPY-R51", three(long_output_priority=True), decode("c", "b")) is None
    assert broken("SPY-R51", three(long_output_priority=True), decode("a", "b")) == (
        "c should decode and a should be paused"
    )


def test_who_is_paused_longest_comes_before_who_has_generated_less():
    all_requests = (
        decoding("a", 11),
        sits_out("b", 11, 1, prompt=9),
        sits_out("c", 11, 2, prompt=8),
    )
    resumed = book(*all_requests, paused=("c", "b"), max_batch_tkv=24)
    assert broken("SPY-R51", resumed, decode("c", "b")) is None
    assert broken("SPY-R51", resumed, decode("a", "c")) == (
        "b should decode and a should be paused"
    )


def test_among_equals_the_paused_come_first_and_then_the_order_of_running():
    all_requests = (decoding("a", 11), decoding("b", 11), decoding("c", 11))
    by_arrival = book(*all_requests, max_batch_tkv=24)
    assert broken("SPY-R51", by_arrival, decode("a", "b")) is None
    listed = book(*all_requests, running=("c", "b", "a"), max_batch_tkv=24)
    assert broken("SPY-R51", listed, decode("c", "b")) is None
    assert broken("SPY-R51", listed, decode("a", "b")) is not None
    # In the list of running or not: who is not listed comes last.
    unlisted = book(*all_requests, running=("c",), max_batch_tkv=24)
    assert broken("SPY-R51", unlisted, decode("c", "a")) is None


def test_a_long_request_is_passed_by_and_a_short_one_behind_it_may_still_fit():
    all_requests = (decoding("a", 3), decoding("b", 30, prompt=29), decoding("c", 3, prompt=1))
    passing = book(*all_requests, max_batch_tkv=31)
    assert broken("SPY-R51", passing, decode("a", "c")) is None
    # Rows are as wide as the widest: 4 tokens in a row of 32 reach position 32.
    alone = book(*all_requests, max_batch_tkv=64)
    assert broken("SPY-R51", alone, decode("a", "b")) is None
    assert broken("SPY-R51", alone, decode("a", "b", "c")) == "c should be paused"


def test_a_prefill_step_pauses_nobody():
    with_newcomer = three()
    with_newcomer.live["d"] = with_newcomer.requests["d"] = waiting("d")
    assert broken("SPY-R51", with_newcomer, prefill("d", 5)) is None
    assert broken("SPY-R51", history(revision=RELEASE), idle()) is None
    assert not exercised("SPY-R51", history(revision=RELEASE), idle())


# SPY-P01


@pytest.mark.parametrize(("steps", "starves"), [(1, False), (3, False), (4, True), (9, True)])
def test_a_paused_request_comes_back_within_as_many_steps_as_there_are_slots(steps, starves):
    held_back = book(decoding("a", 8), sits_out("b", 8, steps), paused=("b",), max_num_seqs=4)
    expected = (
        f"b has been paused for {steps + 1} steps, but max_num_seqs is 4" if starves else None
    )
    assert broken("SPY-P01", held_back, decode("a")) == expected
    assert broken("SPY-P01", held_back, decode("a", "b")) is None
    assert exercised("SPY-P01", held_back, decode("a"))
    assert not exercised("SPY-P01", held_back, decode("a", "b"))


def test_who_is_not_paused_does_not_starve():
    all_requests = book(decoding("a", 8), decoding("b", 8))
    assert broken("SPY-P01", all_requests, decode("a")) is None
    assert not exercised("SPY-P01", all_requests, decode("a"))
    first = history(decoding("a", 8), revision=RELEASE)
    assert broken("SPY-P01", first, idle()) is None


SAYS = "c has 8 of 20 tokens computed, but no chunk of it runs"


@pytest.mark.parametrize(
    ("interleave", "paused", "says"),
    [(False, frozenset(), SAYS), (True, frozenset(), None), (False, frozenset("b"), None)],
)
def test_a_prefill_goes_on_unless_steps_alternate_or_a_request_is_paused(interleave, paused, says):
    accounts = decoding("a", 8), decoding("b", 8), prefilling("c", 8, 20)
    book = history(*accounts, revision="2.5.2", interleave=interleave, paused=paused)
    assert broken("SPY-R34", book, decode("a", "b")) == says
    assert exercised("SPY-R34", book, decode("a", "b")) is (says is not None)
    assert broken("SPY-R34", book, prefill("c", 8)) is None


def test_a_request_that_has_not_begun_may_be_refused():
    book = history(decoding("a", 8), waiting("c", 20), revision="2.1.2", interleave=False)
    assert broken("SPY-R34", book, decode("a")) is None
    assert not exercised("SPY-R34", book, decode("a"))
