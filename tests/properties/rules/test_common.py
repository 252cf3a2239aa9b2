"""Rules of every system: no request lost, tokens counted, progress, blocks kept together."""

import pytest

from schedproof.model.observation import Step

from ..build import broken, decode, decoding, exercised, history, idle, prefill, prefilling, waiting

SHARED = (("a", 8),)


# ALL-R03


def two_queued(**changes):
    return history(decoding("a", 9), waiting("b"), **changes)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (decode("a", running=("a",), waiting=("b",)), None),
        (decode("a", paused=("a",), waiting=("b",)), None),
        (decode("a", running=("b",), finished={"a": "length"}), None),
        (decode("a", running=("a",), waiting=("b",), prefilling=("b",)), None),
        (decode("a", running=("a",)), "b unfinished, but neither waiting nor running nor paused"),
        (
            decode("a", running=("a", "a"), waiting=("b",)),
            "a in more than one place of waiting, running and paused",
        ),
        (
            decode("a", running=("a",), waiting=("b",), paused=("a",)),
            "a in more than one place of waiting, running and paused",
        ),
        (
            decode("a", running=("a",), waiting=("b",), finished={"a": "eos"}),
            "a still queued, although ended or never accepted",
        ),
        (
            decode("a", running=("a", "ghost"), waiting=("b",)),
            "ghost still queued, although ended or never accepted",
        ),
        (
            decode("ghost", running=("a",), waiting=("b",)),
            "ghost scheduled, although ended or never accepted",
        ),
        (
            decode("a", running=("a",), waiting=("b",), preempted=("ghost",)),
            "ghost preempted, although ended or never accepted",
        ),
        (
            decode("a", running=("a",), waiting=("b",), finished={"ghost": "eos"}),
            "ghost reported as finished, although already ended or never accepted",
        ),
        (
            decode("a", running=("a",), waiting=("b",), prefilling=("ghost",)),
            "ghost prefilling, but neither running nor waiting",
        ),
    ],
)
def test_everyone_unfinished_is_in_one_queue_and_nobody_else(step, message):
    assert broken("ALL-R03", two_queued(), step) == message


def test_who_is_aborted_inside_the_step_has_left_every_queue():
    book = two_queued(aborts_inside=["a"])
    assert broken("ALL-R03", book, decode("a", waiting=("b",))) is None
    seen = decode("a", running=("a",), waiting=("b",))
    assert broken("ALL-R03", book, seen) == ("a still queued, although ended or never accepted")


def test_more_than_five_names_are_counted():
    book = history(*(waiting(f"r{number}") for number in range(7)))
    message = broken("ALL-R03", book, idle(waiting=()))
    assert message is not None
    assert message.startswith("r0, r1, r2, r3, r4 and 2 more unfinished, but ")


def test_queues_are_at_stake_when_one_of_several_finishes():
    leaves = decode("a", finished={"a": "length"})
    assert exercised("ALL-R03", two_queued(), leaves)
    assert not exercised("ALL-R03", two_queued(), decode("a"))
    assert not exercised("ALL-R03", history(decoding("a", 9)), leaves)


# ALL-R04


def last_but_one(**changes):
    return decoding("a", 9, 2, **changes)


@pytest.mark.parametrize(
    ("output_len", "emitted", "finished", "message"),
    [
        (2, {"a": 1}, {"a": "eos"}, None),
        (3, {"a": 1}, {}, None),
        (3, {}, {}, None),
        (2, {"a": 2}, {"a": "eos"}, "a emitted 3 tokens of 2"),
        (
            2,
            {"a": 1},
            {},
            "a emitted its last token (2 of 2), but finished does not list it (expected eos)",
        ),
        (
            2,
            {"a": 1},
            {"a": "length"},
            "a emitted its last token (2 of 2), finished says length, expected eos",
        ),
        (3, {"a": 1}, {"a": "length"}, "a finished (length) after 2 tokens of 3"),
        (3, {"b": 1}, {}, "b is not scheduled, but emitted 1"),
    ],
)
def test_exactly_the_tokens_due_are_emitted_and_the_last_ends_a_request(
    output_len, emitted, finished, message
):
    book = history(last_but_one(output_len=output_len))
    assert broken("ALL-R04", book, decode("a", emitted=emitted, finished=finished)) == message


@pytest.mark.parametrize(
    ("emitted", "finished", "message"),
    [
        (1, {}, None),
        (1, {"a": "eos"}, None),
        (2, {"a": "eos"}, None),
        (2, {"a": "length"}, None),
        (0, {}, None),
        (0, {"a": "eos"}, "a finished (eos) after 1 tokens of 3"),
        (1, {"a": "length"}, "a finished (length) after 2 tokens of 3"),
        (
            2,
            {},
            "a emitted its last token (3 of 3), but finished does not list it (expected length)",
        ),
        (3, {}, "a emitted 4 tokens of 3"),
        (3, {"a": "eos"}, "a emitted 4 tokens of 3"),
    ],
)
def test_where_nobody_knows_the_end_max_tokens_or_an_eos_at_once_is_one(emitted, finished, message):
    book = history(decoding("a", 9, 2, output_len=None))
    shown = {"a": emitted} if emitted else {}
    assert broken("ALL-R04", book, decode("a", emitted=shown, finished=finished)) == message


def test_a_request_that_uses_all_its_tokens_ends_by_length():
    book = history(decoding("a", 9, 1))
    seen = decode("a", emitted={"a": 1}, finished={"a": "eos"})
    assert broken("ALL-R04", book, seen) == (
        "a emitted its last token (2 of 2), finished says eos, expected length"
    )
    assert exercised("ALL-R04", book, seen)


def test_no_token_comes_of_a_request_that_has_ended():
    seen = decode("a", "gone", emitted={"gone": 1})
    message = "gone emitted 1 although it has ended or was never accepted"
    assert broken("ALL-R04", history(decoding("a", 9)), seen) == message


def test_an_abort_is_reported_in_its_step_and_emits_nothing():
    inside = history(decoding("a", 9), aborts_inside=["a"])
    assert broken("ALL-R04", inside, decode("a", finished={"a": "aborted"})) is None
    assert broken("ALL-R04", inside, decode("a")) == (
        "a was aborted inside the step, but finished does not list it"
    )
    assert broken("ALL-R04", inside, decode("a", emitted={"a": 1})) == (
        "a emitted 1 although it was aborted inside the step"
    )
    between = history(decoding("a", 9, ended="aborted"), aborts_to_report=["a"])
    assert broken("ALL-R04", between, idle(finished={"a": "aborted"})) is None
    assert broken("ALL-R04", between, idle()) == (
        "a aborted before the step, but not reported as aborted in it"
    )
    assert not exercised("ALL-R04", between, idle(finished={"a": "aborted"}))


# ALL-R05, ALL-R06


def test_the_first_in_line_is_scheduled_within_its_allowance():
    in_time = history(waiting("a"), first_in_line=("a", 3, 5), step=7)
    assert broken("ALL-R05", in_time, idle()) is None
    late = history(waiting("a"), first_in_line=("a", 3, 5), step=8)
    assert broken("ALL-R05", late, idle()) == (
        "a has been first in line since step 3, and must be scheduled by step 8, 5 steps later"
    )
    assert broken("ALL-R05", late, prefill("a", 5)) is None
    assert exercised("ALL-R05", in_time, idle())
    assert not exercised("ALL-R05", in_time, prefill("a", 5))
    assert not exercised("ALL-R05", history(decoding("a", 9)), decode("a"))


def test_everything_ends_within_the_work_that_it_is():
    book = history(decoding("a", 9), work=10, busy_steps=13)
    assert broken("ALL-R06", book, decode("a")) is None
    late = history(decoding("a", 9), work=10, busy_steps=14)
    assert broken("ALL-R06", late, decode("a")) == (
        "a unfinished after 15 busy steps; all work together takes at most 14"
    )
    ends = decode("a", finished={"a": "length"})
    assert broken("ALL-R06", late, ends) is None
    assert exercised("ALL-R06", book, ends)
    assert not exercised("ALL-R06", book, decode("a"))
    assert not exercised("ALL-R06", history(), idle())


# ALL-R08


def newcomer(**changes):
    return waiting("b", 12, content=(*SHARED, ("b", 4)), **changes)


def after_hit(hit, **fields):
    return prefill("b", 12 - hit, prefix_hit={"b": hit}, **fields)


@pytest.mark.parametrize(
    ("owner", "known"),
    [
        (decoding("a", 8), 8),
        (decoding("a", 9, content=(("a", 9),)), 8),
        (prefilling("a", 4, 8), 4),
        (decoding("a", 8, ended="length"), 8),
        (prefilling("a", 4, 8, ended="aborted"), 4),
        (waiting("a", 8), 0),
        (decoding("c", 8, content=(("c", 8),)), 0),
        (decoding("a", 6, content=(("a", 6),)), 6),
    ],
    ids=[
        *("shorter", "longer", "in prefill", "finished", "aborted"),
        *("not computed", "another's", "shares less"),
    ],
)
def test_a_hit_is_no_longer_than_what_somebody_has_computed(owner, known):
    book = history(owner, newcomer(), prefix_caching=True)
    assert broken("ALL-R08", book, after_hit(known)) is None
    computed = f"of which only {known} were" if known else "none of which were"
    assert broken("ALL-R08", book, after_hit(known + 1)) == (
        f"b takes {known + 1} tokens from the cache, {computed} ever computed"
    )


def test_what_is_computed_in_the_same_step_may_be_a_hit():
    book = history(prefilling("a", 4, 8), newcomer(), prefix_caching=True)
    both = Step(kind="prefill", scheduled={"a": 4, "b": 4}, prefix_hit={"b": 8})
    assert broken("ALL-R08", book, both) is None
    alone = Step(kind="prefill", scheduled={"b": 4}, prefix_hit={"b": 8})
    assert broken("ALL-R08", book, alone) is not None


def test_generated_tokens_may_be_a_hit_but_for_the_last_which_is_not_computed():
    owner = decoding("a", 10, prompt=8)
    content = (*SHARED, ("out:a", 3), ("b", 4))
    book = history(owner, waiting("b", 15, content=content), prefix_caching=True)
    assert broken("ALL-R08", book, prefill("b", 5, prefix_hit={"b": 10})) is None
    assert broken("ALL-R08", book, prefill("b", 4, prefix_hit={"b": 11})) == (
        "b takes 11 tokens from the cache, of which only 10 were ever computed"
    )


def test_nobody_can_hit_what_only_it_would_compute_itself():
    book = history(newcomer(), prefix_caching=True)
    assert broken("ALL-R08", book, after_hit(4)) == (
        "b takes 4 tokens from the cache, none of which were ever computed"
    )


def test_a_hit_is_at_stake_in_the_first_chunk_only():
    start = history(decoding("a", 8), newcomer(), prefix_caching=True)
    assert exercised("ALL-R08", start, after_hit(8))
    assert not exercised("ALL-R08", start, after_hit(0))
    later = history(
        decoding("a", 8), newcomer(computed=8, prefix_hit=8, prefill_steps=1), prefix_caching=True
    )
    assert not exercised("ALL-R08", later, after_hit(8))
    assert broken("ALL-R08", later, after_hit(12)) is None
    off = history(decoding("a", 8), newcomer())
    assert not exercised("ALL-R08", off, after_hit(8))
    assert broken("ALL-R08", off, after_hit(12)) is None


# ALL-R09


@pytest.mark.parametrize(
    ("blocks", "free", "message"),
    [
        ({"a": [1, 2], "b": [3]}, 7, None),
        ({"a": [1, 2], "b": [1, 3]}, 7, None),
        ({}, 10, None),
        (None, 10, None),
        ({"a": [1, 2]}, 7, "2 blocks held and 7 free, but the pool has 10"),
        ({"a": [1, 2]}, 9, "2 blocks held and 9 free, but the pool has 10"),
        ({"a": [1, 2], "b": [1, 3]}, 6, "3 blocks held and 6 free, but the pool has 10"),
    ],
)
def test_held_and_free_blocks_are_the_pool_shared_ones_counted_once(blocks, free, message):
    held = None if blocks is None else {name: tuple(own) for name, own in blocks.items()}
    book = history(decoding("a", 8), decoding("b", 8), num_blocks=10)
    assert broken("ALL-R09", book, decode("a", blocks=held, free_blocks=free)) == message


def test_a_request_that_has_ended_holds_no_blocks():
    step = decode("a", blocks={"a": (1, 2), "gone": (3,)}, free_blocks=7)
    reported = broken("ALL-R09", history(decoding("a", 8), num_blocks=10), step)
    assert reported == "gone has ended, but still holds 1 blocks"


def test_a_pool_without_bound_or_out_of_sight_loses_no_block():
    seen = decode("a", blocks={"a": (1,)}, free_blocks=3)
    assert broken("ALL-R09", history(decoding("a", 8)), seen) is None
    hidden = decode("a", blocks={"a": (1,)})
    assert broken("ALL-R09", history(decoding("a", 8), num_blocks=10), hidden) is None


def test_the_pool_is_at_stake_when_a_holder_of_blocks_leaves():
    held = decode("a", blocks={"a": (1, 2)})
    leaves = decode("a", finished={"a": "length"})
    book = history(decoding("a", 8), waiting("b"), last=held, num_blocks=10)
    assert exercised("ALL-R09", book, leaves)
    assert not exercised("ALL-R09", book, decode("a"))
    assert not exercised("ALL-R09", book, idle(finished={"b": "aborted"}))
    assert not exercised("ALL-R09", history(decoding("a", 8), last=held), leaves)
    assert not exercised("ALL-R09", history(decoding("a", 8), num_blocks=10), leaves)


# ALL-R10


@pytest.mark.parametrize(
    ("barren", "step", "message"),
    [
        (1, idle(), None),
        (2, idle(), "no token was computed in 3 steps in a row"),
        (5, idle(), "no token was computed in 6 steps in a row"),
        (2, Step(kind="decode", scheduled={"a": 0}), "no token was computed in 3 steps in a row"),
        (2, decode("a"), None),
    ],
)
def test_of_three_steps_in_a_row_one_computes_a_token(barren, step, message):
    assert broken("ALL-R10", history(decoding("a", 8), barren_steps=barren), step) == message


def test_where_nobody_is_unfinished_nothing_need_be_computed():
    gone = history(decoding("a", 8, ended="eos"), barren_steps=9)
    assert broken("ALL-R10", gone, idle()) is None
    assert not exercised("ALL-R10", gone, idle())


def test_livelock_is_at_stake_while_an_unfinished_request_gets_nothing():
    book = history(decoding("a", 8), waiting("b"))
    assert exercised("ALL-R10", book, decode("a"))
    assert not exercised("ALL-R10", book, Step(kind="mixed", scheduled={"a": 1, "b": 5}))


def test_barren_steps_are_counted_until_a_step_makes_progress_or_nobody_is_left():
    book = history(waiting("a"), waiting("b"), waiting("c"))
    for expected in (1, 2):
        book.observe(idle())
        assert book.barren_steps == expected
    book.observe(Step(kind="prefill", scheduled={"a": 0}))
    assert book.barren_steps == 3
    book.observe(prefill("a", 5))
    assert book.barren_steps == 0
    book.observe(idle(finished={"a": "aborted"}))
    assert book.barren_steps == 1
    book.observe(idle(finished={"b": "error"}))
    assert book.barren_steps == 0
    book.observe(idle())
    assert book.barren_steps == 1
    book.observe(idle(finished={"c": "aborted"}))
    book.observe(idle())
    assert book.barren_steps == 0
