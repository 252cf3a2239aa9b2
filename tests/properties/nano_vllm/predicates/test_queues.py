"""Queues and their order, by example."""

import pytest

from schedproof.properties.nano_vllm.predicates import admission

from .build import book, ran, request, runs


@pytest.mark.parametrize(
    ("gone", "waiting", "reported"),
    [
        ("", "d", None),
        ("c", "cd", None),
        ("cb", "bcd", None),
        ("c", "dc", "c preempted; the queue is d, c"),
        ("cb", "cbd", "b, c preempted; the queue is c, b, d"),
        ("c", "d", "c preempted; the queue is d"),
    ],
)
def test_those_preempted_wait_in_front_in_the_order_in_which_they_ran(gone, waiting, reported):
    history = book(*(runs(name) for name in "abc"), request("d"), running="abc", waiting="d")
    step = ran({"a": 1}, "a", waiting, preempted=tuple(gone))
    assert admission.victim_not_in_front(history, step) == reported


def test_one_preempted_and_aborted_inside_the_step_need_not_wait():
    history = book(runs("a"), runs("b"), request("d"), running="ab")
    history.aborts_inside = {"b"}
    step = ran({"a": 1}, "a", "d", preempted=("b",))
    assert admission.victim_not_in_front(history, step) is None


@pytest.mark.parametrize(
    ("gone", "waiting", "exercised"), [("b", "bd", True), ("b", "b", False), ("", "d", False)]
)
def test_the_front_is_at_stake_when_others_wait_beside_the_victims(gone, waiting, exercised):
    history = book(runs("a"), runs("b"), request("d"), running="ab")
    step = ran({"a": 1}, "a", waiting, preempted=tuple(gone))
    assert admission.preempts_while_others_wait(history, step) is exercised


@pytest.mark.parametrize(
    ("waiting", "reported"),
    [
        ("bcd", None),
        ("cd", None),
        ("xbcd", None),
        ("cbd", "the queue is c, b, d; they arrived as b, c, d"),
        ("dbc", "the queue is d, b, c; they arrived as b, c, d"),
        ("db", "the queue is d, b; they arrived as b, d"),
    ],
)
def test_who_waits_keeps_its_place_and_newcomers_stand_behind(waiting, reported):
    """b and c waited before, d has come since; x runs and is preempted."""
    waits = [request(name) for name in "bcd"]
    history = book(runs("x"), *waits, running="x", waiting="bc")
    assert admission.newcomer_not_at_the_back(history, ran({}, "", waiting)) == reported


@pytest.mark.parametrize(("waiting", "exercised"), [("b", True), ("bc", False), ("", False)])
def test_the_back_is_at_stake_when_one_comes_while_others_wait(waiting, exercised):
    history = book(request("b"), request("c"), waiting=waiting)
    assert admission.someone_arrives(history, ran({})) is exercised


def test_before_the_first_step_nobody_waits():
    history = book(request("b"), request("c"))
    history.last = None
    assert not admission.someone_arrives(history, ran({}))
    assert admission.newcomer_not_at_the_back(history, ran({}, "", "bc")) is None
    assert admission.newcomer_not_at_the_back(history, ran({}, "", "cb")) is not None


# --- requests that run (NAN-R15)
# -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduled", "running", "more", "reported"),
    [
        ("ab", "ab", {}, None),
        ("ab", "ba", {}, "running: b, a; expected: a, b"),
        ("ab", "", {}, "running: none; expected: a, b"),
        ("a", "a", {"finished": {"a": "eos", "b": "eos"}}, "running: a; expected: none"),
        ("ba", "ab", {}, "scheduled in the order b, a; expected a, b"),
        ("ab", "b", {"finished": {"a": "eos"}}, None),
        ("ab", "ab", {"finished": {"a": "eos"}}, "running: a, b; expected: b"),
        ("a", "a", {"preempted": ("b",)}, None),
        ("a", "ab", {"preempted": ("b",)}, "running: a, b; expected: a"),
    ],
)
def test_who_runs_keeps_its_order_and_is_scheduled_in_it(scheduled, running, more, reported):
    history = book(runs("a"), runs("b"), running="ab")
    step = ran(dict.fromkeys(scheduled, 1), running, **more)
    assert admission.running_out_of_order(history, step) == reported


def test_one_aborted_inside_the_step_runs_no_longer():
    history = book(runs("a"), runs("b"), running="ab")
    history.aborts_inside = {"a"}
    assert admission.running_out_of_order(history, ran({"a": 1, "b": 1}, "b")) is None


@pytest.mark.parametrize(
    ("running", "reported"),
    [
        ("xab", None),
        ("xba", "running: x, b, a; expected: x, a, b"),
        ("axb", "running: a, x, b; expected: x, a, b"),
        ("xa", "running: x, a; expected: x, a, b"),
    ],
)
def test_those_admitted_join_at_the_end_in_their_order(running, reported):
    history = book(runs("x"), request("a", 2), request("b", 2), running="x")
    assert admission.running_out_of_order(history, ran({"a": 2, "b": 2}, running)) == reported


def test_one_whose_prompt_is_computed_in_part_does_not_run_yet():
    history = book(runs("x"), request("a", 15), running="x", revision="0.2.0")
    assert admission.running_out_of_order(history, ran({"a": 10}, "x", "a")) is None
    reported = admission.running_out_of_order(history, ran({"a": 10}, "xa"))
    assert reported == "running: x, a; expected: x"


def test_an_order_is_at_stake_when_several_run():
    history = book(runs("a"), runs("b"), running="ab")
    assert admission.several_run(history, ran({}, "ab"))
    assert not admission.several_run(history, ran({}, "a"))


# --- requests that wait (NAN-R03)
# ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "prefilling", "holder", "reported"),
    [
        ("documented", "", "", None),
        ("documented", "", "b", "b waits, number 1 in line, and holds 2 blocks"),
        ("documented", "b", "b", "b waits, number 1 in line, and holds 2 blocks"),
        ("0.2.0", "b", "b", None),
        ("0.2.0", "", "b", "b waits, number 1 in line, and holds 2 blocks"),
        ("0.2.0", "c", "c", "c waits, number 2 in line, and holds 2 blocks"),
    ],
)
def test_who_waits_holds_nothing_but_one_in_front_in_the_middle_of_its_prompt(
    revision, prefilling, holder, reported
):
    tables = {"a": (1, 2)} | dict.fromkeys(holder, (3, 4))
    history = book(runs("a"), request("b"), request("c"), running="a", revision=revision)
    step = ran({"a": 1}, "a", "bc", prefilling=tuple(prefilling), blocks=tables)
    assert admission.waiting_holds_blocks(history, step) == reported


@pytest.mark.parametrize(
    ("waiting", "tables", "exercised"),
    [("b", {"a": (1,)}, True), ("", {"a": (1,)}, False), ("b", {}, False), ("b", None, False)],
)
def test_holding_is_at_stake_while_somebody_waits_and_blocks_are_held(waiting, tables, exercised):
    history = book(runs("a"), request("b"), running="a")
    step = ran({}, "a", waiting, blocks=tables)
    assert admission.someone_waits_and_blocks_are_held(history, step) is exercised
