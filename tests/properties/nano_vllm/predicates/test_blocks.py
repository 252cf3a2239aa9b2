"""Blocks written to, shared and found, by example; and that every predicate has a name."""

import pytest

from schedproof.properties.nano_vllm.predicates import PREDICATES, admission, blocks, decode

from .build import IDLE, book, ran, request, runs

PARTS = (admission, decode, blocks)


def test_every_predicate_is_found_under_one_rule():
    assert sum(len(part.PREDICATES) for part in PARTS) == len(PREDICATES) == 25
    assert len({each.broken for each in PREDICATES.values()}) == len(PREDICATES)


@pytest.mark.parametrize("rule", PREDICATES)
def test_nothing_breaks_and_nothing_is_at_stake_where_nobody_is(rule):
    history = book()
    for last in (history.last, None):
        history.last = last
        assert PREDICATES[rule].broken(history, IDLE) is None
        assert not PREDICATES[rule].exercised(history, IDLE)


@pytest.mark.parametrize(
    ("tokens", "computed", "written", "reported"),
    [
        (1, 9, (5,), None),
        (1, 8, (3,), None),
        (*(1, 9, (3,)), "a writes tokens 8 to 8 to blocks [3], its block table has [5] there"),
        (9, 9, (7, 3, 5), None),
        (5, 9, (3, 5), None),
        (
            *(5, 9, (7, 3, 5)),
            "a writes tokens 4 to 8 to blocks [7, 3, 5], its block table has [3, 5] there",
        ),
        (*(4, 8, ()), "a writes tokens 4 to 7 to blocks [], its block table has [3] there"),
    ],
)
def test_tokens_are_written_to_the_blocks_of_their_positions(tokens, computed, written, reported):
    step = ran(
        {"a": tokens},
        "a",
        computed={"a": computed},
        blocks={"a": (7, 3, 5)},
        slot_blocks={"a": written},
    )
    assert blocks.slot_wrong(book(request("a", 9)), step) == reported


def test_slots_of_one_that_has_left_are_not_judged():
    step = ran({"a": 1}, computed={}, blocks={}, slot_blocks={"a": (9,)})
    assert blocks.slot_wrong(book(runs("a"), running="a"), step) is None
    assert not blocks.something_written(book(runs("a"), running="a"), step)


def test_slots_are_at_stake_when_one_is_scheduled_and_goes_on():
    history = book(runs("a"), running="a")
    assert blocks.something_written(history, ran({"a": 1}, "a", blocks={"a": (1, 2)}))
    assert not blocks.something_written(history, ran({}, "a", blocks={"a": (1, 2)}))


@pytest.mark.parametrize(
    ("own", "held", "reported"),
    [
        ((("s", 8), ("b", 4)), (1, 2, 4), None),
        ((("s", 4), ("b", 8)), (1, 5, 4), None),
        ((("s", 4), ("b", 8)), (1, 2, 4), "b and a share block 2, and differ before token 8"),
        ((("b", 12),), (1, 5, 4), "b and a share block 1, and differ before token 4"),
        ((("s", 8), ("b", 4)), (2, 1, 4), "block 2 is block 0 of b and 1 of a"),
        ((("s", 8), ("b", 4)), (1, 2, 3), "b and a share block 3, which is still being written"),
    ],
)
def test_blocks_are_shared_only_at_the_same_place_full_and_with_the_same_tokens(
    own, held, reported
):
    history = book(request("a", 11, content=(("s", 8), ("a", 3))), request("b", 12, content=own))
    step = ran({}, "ab", computed={"a": 11, "b": 12}, blocks={"a": (1, 2, 3), "b": held})
    assert blocks.shared_wrongly(history, step) == reported


def test_a_table_has_no_block_twice():
    """The deck's example of tables has one three times."""
    step = ran({}, "a", computed={"a": 20}, blocks={"a": (5, 5, 5, 7, 12)})
    reported = blocks.shared_wrongly(book(request("a", 20)), step)
    assert reported == "block 5 is block 1 of a and 0 of a"


@pytest.mark.parametrize(
    ("emitted", "reported"),
    [({"a": 1}, None), ({}, "b and a share block 2, and differ before token 8")],
)
def test_what_is_emitted_in_the_step_counts_as_said(emitted, reported):
    """a has said six tokens and generated one; the second one comes in this step."""
    content = (("a", 6), ("out:a", 2))
    history = book(request("a", 6, 7, 1), request("b", 8, content=content))
    tables = {"a": (1, 2), "b": (1, 2)}
    step = ran({"a": 1}, "ab", computed={"a": 8, "b": 8}, blocks=tables, emitted=emitted)
    assert blocks.shared_wrongly(history, step) == reported


def test_sharing_is_at_stake_when_two_hold_the_same_block():
    history = book(runs("a"), runs("b"), running="ab")
    assert blocks.something_shared(history, ran({}, "ab", blocks={"a": (1, 2), "b": (1, 3)}))
    assert not blocks.something_shared(history, ran({}, "ab", blocks={"a": (1, 2), "b": (4, 3)}))
    assert not blocks.something_shared(history, ran({}, "ab"))


@pytest.mark.parametrize(
    ("hit", "reported"),
    [
        (0, None),
        (4, None),
        (8, None),
        (5, "a finds 5 tokens in the cache, which are not whole blocks"),
    ],
)
def test_a_hit_is_made_of_whole_blocks(hit, reported):
    step = ran({"a": 9 - hit}, "a", prefix_hit={"a": hit})
    assert blocks.hit_ends_in_a_block(book(request("a", 9)), step) == reported
    assert blocks.part_of_a_prompt_is_known(book(request("a", 9)), step) is (hit > 0)


def test_hits_of_those_who_run_are_not_found_again():
    history = book(runs("a", prefix_hit=4), running="a")
    step = ran({"a": 1}, "a", prefix_hit={"a": 4})
    assert not blocks.part_of_a_prompt_is_known(history, step)


@pytest.mark.parametrize(
    ("prompt", "hit", "reported"),
    [
        (8, 4, None),
        (8, 8, "a finds 8 of 8 tokens in the cache, but at most 4 are allowed"),
        (9, 8, None),
        (4, 4, "a finds 4 of 4 tokens in the cache, but at most 0 are allowed"),
        (3, 0, None),
    ],
)
def test_the_last_block_is_never_a_hit(prompt, hit, reported):
    step = ran({"a": prompt - hit}, "a", prefix_hit={"a": hit})
    assert blocks.last_block_hit(book(request("a", prompt)), step) == reported


def test_of_one_that_ends_in_its_first_step_the_hit_is_what_it_did_not_compute():
    step = ran({"a": 0}, finished={"a": "length"})
    reported = blocks.last_block_hit(book(request("a", 8)), step)
    assert reported == "a finds 8 of 8 tokens in the cache, but at most 4 are allowed"


def test_what_one_in_chunks_found_in_an_earlier_step_is_not_judged_again():
    history = book(request("a", 8, 4, prefix_hit=8), revision="0.2.0")
    assert blocks.last_block_hit(history, ran({"a": 4}, "a", prefix_hit={"a": 8})) is None


@pytest.mark.parametrize(
    ("prompt", "computed", "exercised"),
    [(8, 8, True), (8, 7, False), (7, 8, False), (12, 8, False)],
)
def test_the_last_block_is_at_stake_when_others_have_computed_all_of_whole_blocks(
    prompt, computed, exercised
):
    old = request("x", 10, computed, content=(("s", 10),))
    new = request("a", prompt, content=(("s", prompt),))
    history = book(old, new, running="x")
    assert blocks.everything_known_elsewhere(history, ran({"a": prompt}, "xa")) is exercised
    assert not blocks.everything_known_elsewhere(history, ran({"x": 1}, "x", "a"))
