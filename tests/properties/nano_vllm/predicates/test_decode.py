"""Decode steps and preemption, by example."""

import pytest

from schedproof.properties.nano_vllm.predicates import decode

from ...rules.tables import with_tables
from .build import book, ran, request, runs


@pytest.mark.parametrize(
    ("tokens", "reported"),
    [(1, None), (2, "a runs and computes 2 tokens"), (0, "a runs and computes 0 tokens")],
)
def test_who_runs_computes_one_token(tokens, reported):
    history = book(runs("a"), request("b"), running="a")
    assert decode.several_tokens(history, ran({"a": tokens}, "a", "b")) == reported
    assert decode.several_tokens(history, ran({"b": 6}, "ab")) is None


def test_decoding_is_at_stake_when_one_who_runs_is_scheduled():
    history = book(runs("a"), request("b"), running="a")
    assert decode.someone_decodes(history, ran({"a": 1}, "a", "b"))
    assert not decode.someone_decodes(history, ran({"b": 6}, "ab"))


# --- every request (NAN-R04)
# -----------------------------------------------------------------------


def test_everyone_who_runs_has_a_turn_or_gives_way():
    history = book(*(runs(name) for name in "abc"), running="abc")
    assert decode.passed_by(history, ran({"a": 1, "b": 1, "c": 1}, "abc")) is None
    assert decode.passed_by(history, ran({"a": 1, "b": 1}, "ab", "c", preempted=("c",))) is None
    reported = decode.passed_by(history, ran({"b": 1}, "abc"))
    assert reported == "a, c runs, but gets no token in a step that decodes"


def test_beside_a_prefill_nobody_has_a_turn():
    history = book(runs("a"), request("b"), running="a")
    assert decode.passed_by(history, ran({"b": 6}, "ab")) is None


@pytest.mark.parametrize(
    ("step", "exercised"),
    [
        (ran({"a": 1, "b": 1}, "ab", "c"), True),
        (ran({"a": 1}, "a", "bc", preempted=("b",)), False),
        (ran({"c": 6}, "abc"), False),
    ],
)
def test_turns_are_at_stake_when_several_go_on_in_a_step_that_decodes(step, exercised):
    history = book(runs("a"), runs("b"), request("c"), running="ab")
    assert decode.several_decode(history, step) is exercised


@pytest.mark.parametrize(
    ("gone", "reported"),
    [
        ("", None),
        ("c", None),
        ("bc", None),
        ("abc", None),
        ("b", "b preempted instead of c; a, b, c ran, in this order"),
        ("ac", "a, c preempted instead of b, c; a, b, c ran, in this order"),
    ],
)
def test_victims_are_the_last_of_those_who_run(gone, reported):
    history = book(*(runs(name, 4) for name in "abc"), running="abc", free=0)
    assert decode.wrong_victim(history, ran({}, preempted=tuple(gone))) == reported


@pytest.mark.parametrize(
    ("free", "reported"),
    [
        (1, None),
        (
            2,
            "b preempted, although running requests needed at most 2 blocks, and 2 were free "
            "before b gave back its blocks",
        ),
    ],
)
def test_nobody_is_preempted_while_there_are_blocks_for_all(free, reported):
    """Both are at the end of a block: each needs one more."""
    history = with_tables(book(runs("a", 4), runs("b", 8), running="ab"), free)
    step = ran({"a": 1}, "a", "b", preempted=("b",))
    assert decode.wrong_victim(history, step) == reported


def test_who_is_inside_a_block_needs_none():
    history = with_tables(book(runs("a", 5), runs("b", 6), running="ab"), 0)
    reported = decode.wrong_victim(history, ran({"a": 1}, "a", "b", preempted=("b",)))
    assert reported == (
        "b preempted, although running requests needed at most 0 blocks, and 0 were free "
        "before b gave back its blocks"
    )


def test_without_a_number_of_free_blocks_only_the_order_counts():
    history = book(runs("a", 5), runs("b", 7), running="ab", free=None)
    assert decode.wrong_victim(history, ran({}, preempted=("b",))) is None
    assert decode.wrong_victim(history, ran({}, preempted=("a",))) is not None


@pytest.mark.parametrize(
    ("names", "gone", "exercised"), [("ab", "b", True), ("a", "a", False), ("ab", "", False)]
)
def test_the_choice_of_a_victim_is_at_stake_among_several(names, gone, exercised):
    history = book(*(runs(name) for name in names), running=names)
    assert decode.preempts_among_several(history, ran({}, preempted=tuple(gone))) is exercised


@pytest.mark.parametrize(
    ("waiting", "more", "reported"),
    [
        ("b", {}, None),
        ("b", {"computed": {"a": 7, "b": 0}, "blocks": {"a": (1, 2), "b": ()}}, None),
        ("b", {"computed": {"b": 4}}, "b was preempted but still has 4 computed tokens"),
        ("b", {"blocks": {"b": (3, 5)}}, "b was preempted and holds 2 blocks"),
        ("", {}, "b was preempted, but does not wait"),
    ],
)
def test_a_victim_waits_holds_nothing_and_has_nothing_computed(waiting, more, reported):
    history = book(runs("a"), runs("b"), running="ab")
    step = ran({"a": 1}, "a", waiting, preempted=("b",), **more)
    assert decode.victim_keeps_something(history, step) == reported


def test_a_victim_that_is_aborted_inside_the_step_need_not_wait():
    history = book(runs("a"), runs("b"), running="ab")
    history.aborts_inside = {"b"}
    assert decode.victim_keeps_something(history, ran({"a": 1}, "a", preempted=("b",))) is None


def test_what_a_victim_keeps_is_at_stake_when_one_who_ran_is_preempted():
    history = book(runs("a"), request("b"), running="a")
    assert decode.someone_is_preempted(history, ran({}, "", "ab", preempted=("a",)))
    assert not decode.someone_is_preempted(history, ran({"a": 1}, "a", "b"))
    assert not decode.someone_is_preempted(history, ran({}, "a", "b", preempted=("b",)))


@pytest.mark.parametrize(
    ("tokens", "emitted", "reported"),
    [
        (15, 1, None),
        (15, 0, "a emits no token; it computed 15 of 15 tokens"),
        (10, 0, None),
        (10, 1, "a emits a token; it computed 10 of 15 tokens"),
    ],
)
def test_a_token_comes_out_exactly_where_a_prompt_is_computed_to_its_end(tokens, emitted, reported):
    history = book(request("a", 15), revision="0.2.0")
    step = ran({"a": tokens}, "a", emitted={"a": emitted} if emitted else {})
    assert decode.emission_wrong(history, step) == reported


def test_what_is_cached_counts_as_computed():
    history = book(request("a", 15))
    step = ran({"a": 3}, "a", emitted={"a": 1}, prefix_hit={"a": 12})
    assert decode.emission_wrong(history, step) is None
    less = ran({"a": 3}, "a", emitted={"a": 1}, prefix_hit={"a": 8})
    assert decode.emission_wrong(history, less) == "a emits a token; it computed 3 of 7 tokens"


def test_who_decodes_emits_a_token():
    history = book(runs("a"), running="a")
    assert decode.emission_wrong(history, ran({"a": 1}, "a", emitted={"a": 1})) is None
    reported = decode.emission_wrong(history, ran({"a": 1}, "a"))
    assert reported == "a emits no token; it computed 1 of 1 tokens"
    reported = decode.emission_wrong(history, ran({"a": 1}, "a", emitted={"a": 2}))
    assert reported == "a emits 2 tokens; it computed 1 of 1 tokens"


def test_of_one_aborted_inside_the_step_no_token_is_expected():
    history = book(runs("a"), running="a")
    history.aborts_inside = {"a"}
    assert decode.emission_wrong(history, ran({"a": 1})) is None


def test_the_first_token_is_at_stake_while_somebody_is_prefilled():
    history = book(runs("a"), request("b"), running="a")
    assert decode.sequence_prefills(history, ran({"b": 6}, "ab"))
    assert not decode.sequence_prefills(history, ran({"a": 1}, "a", "b"))


def back(**changes):
    """b was preempted with a prompt of 6 and 3 tokens generated: 9 are to be computed."""
    values = {"emitted": 3, "regenerated": 3, "recompute_from": 8, "preemptions": 1, **changes}
    return request("b", 6, **values)


@pytest.mark.parametrize(
    ("tokens", "hit", "reported"),
    [
        (9, 0, None),
        (6, 0, "b was preempted with 3 tokens generated and computes 6 of 9"),
        (8, 0, "b was preempted with 3 tokens generated and computes 8 of 9"),
        (1, 8, None),
        (2, 8, "b was preempted with 3 tokens generated and computes 2 of 1"),
    ],
)
def test_who_comes_back_computes_prompt_and_generated_tokens_but_not_what_is_cached(
    tokens, hit, reported
):
    step = ran({"b": tokens}, "b", prefix_hit={"b": hit})
    assert decode.not_all_again(book(back()), step) == reported


def test_who_comes_back_may_do_so_in_chunks_of_the_budget():
    history = book(back(emitted=7, regenerated=7), revision="0.2.0")
    assert decode.not_all_again(history, ran({"b": 10}, "", "b")) is None
    assert decode.not_all_again(history, ran({"b": 9}, "", "b")) is not None


def test_who_was_never_preempted_has_nothing_to_compute_again():
    assert decode.not_all_again(book(request("b")), ran({"b": 5}, "b")) is None


@pytest.mark.parametrize(
    ("changes", "exercised"),
    [({}, True), ({"regenerated": 0, "emitted": 0}, False), ({"preemptions": 0}, False)],
)
def test_computing_again_is_at_stake_when_one_comes_back_with_tokens(changes, exercised):
    history = book(back(**changes))
    assert decode.comes_back(history, ran({"b": 9}, "b")) is exercised
    assert not decode.comes_back(history, ran({}, "", "b"))


@pytest.mark.parametrize(
    ("computed", "held", "reported"),
    [
        (4, (1,), None),
        (3, (1, 2), "a holds 2 blocks; its 3 computed tokens need 1"),
        (4, (1, 2), None),  # the deck: at boundary, a new block
        (5, (1, 2), None),
        (5, (1,), "a holds 1 blocks; its 5 computed tokens need 2"),
        (5, (), "a holds 0 blocks; its 5 computed tokens need 2"),
    ],
)
def test_who_runs_holds_the_blocks_of_what_is_computed(computed, held, reported):
    step = ran({"a": 1}, "a", computed={"a": computed}, blocks={"a": held})
    assert decode.table_wrong(book(runs("a"), running="a"), step) == reported


def test_who_waits_may_hold_more_than_is_computed():
    step = ran({"a": 10}, "", "a", computed={"a": 10}, blocks={"a": (1, 2, 3, 4)})
    assert decode.table_wrong(book(request("a", 15), revision="0.2.0"), step) is None


@pytest.mark.parametrize(("computed", "exercised"), [(7, False), (8, True), (9, False)])
def test_a_border_is_crossed_with_the_token_after_a_full_block(computed, exercised):
    history = book(runs("a", computed), running="a")
    assert decode.border_crossed(history, ran({"a": 1}, "a")) is exercised
    assert not decode.border_crossed(history, ran({}, "", "a", preempted=("a",)))
