"""Undecided requests: what they may still be, and that looking at them is noticed."""

import dataclasses

import pytest

from schedproof.model.scenario import Request
from schedproof.properties.history.request_history import RequestHistory
from schedproof.solver.exploration.branching_history import BranchingHistory
from schedproof.solver.exploration.undecided import (
    ENDLESS,
    OWN,
    ChoiceNeeded,
    OpenRequestHistory,
    RequestMenu,
    fully_decided,
)
from schedproof.solver.spyre.space import SpyreModels
from schedproof.solver.vllm.space import VllmModels

ITEMS = [
    Request(id=f"item {number}", arrival=0, prompt=prompt, max_tokens=tokens)
    for number, (prompt, tokens) in enumerate(
        [(((OWN, 3),), 1), (((OWN, 3),), 4), ((("shared", 2), (OWN, 1)), 4), (((OWN, 5),), 6)]
    )
]


@pytest.fixture
def menu():
    return RequestMenu(ITEMS, [0b11, 0b11, 0b11, 0b10])


def test_what_the_candidates_have_in_common_is_known(menu):
    assert menu.candidates(0b0011).prompt == 3
    assert menu.candidates(0b0011).max_tokens is None
    assert menu.candidates(0b0110).max_tokens == 4
    assert menu.candidates(0b0110).content is None
    assert menu.everything.prompt is None


def test_the_same_items_are_the_same_object(menu):
    assert menu.candidates(0b0101) is menu.candidates(0b0101)


def test_own_words_get_the_name_of_the_request(menu):
    assert menu.candidates(0b0100).known_tokens("r7") == (("shared", 2), ("r7", 1))


@pytest.mark.parametrize(
    ("field", "parts"),
    [
        ("prompt", [0b0111, 0b1000]),
        ("max_tokens", [0b0001, 0b0110, 0b1000]),
        ("content", [0b0011, 0b0100, 0b1000]),
    ],
)
def test_a_split_leaves_nothing_out(menu, field, parts):
    assert [part.bits for part in menu.everything.split(field)] == parts


def test_candidates_by_the_tokens_that_they_ask_for(menu):
    everything = menu.everything
    assert everything.asking_more_than(0) is everything
    assert everything.asking_more_than(1).bits == 0b1110
    assert everything.asking_more_than(6) is None
    assert everything.asking(4).bits == 0b0110
    assert everything.asking(5) is None
    assert menu.candidates(0b1000).asking(6) is menu.candidates(0b1000)
    assert everything.left_after(1) == (0, 3, 5)
    assert menu.candidates(0b1000).left_after(2) == (4,)


def test_the_configurations_that_take_any_of_them(menu):
    assert menu.everything.accepted == 0b11
    assert menu.candidates(0b1000).accepted == 0b10


def test_an_open_history_has_every_field_of_a_decided_one(menu):
    fields = {field.name for field in dataclasses.fields(RequestHistory)}
    assert fields - {*dir(OpenRequestHistory("r0", menu.everything))} <= {"content"}


def test_reading_an_open_field_is_noticed_with_the_request_and_the_field(menu):
    account = OpenRequestHistory("r0", menu.everything)
    with pytest.raises(ChoiceNeeded) as looked:
        account.max_tokens  # noqa: B018 (reading is what is tested)
    assert (looked.value.request, looked.value.field) == ("r0", "max_tokens")


def test_what_is_decided_can_be_read(menu):
    account = OpenRequestHistory("r0", menu.candidates(0b0011))
    assert account.prompt == 3
    assert account.content == (("r0", 3),)
    assert not account.started
    assert account.output_len == ENDLESS


PRIORITIES = [
    Request(id=f"item {number}", arrival=0, prompt=((OWN, 3),), max_tokens=2, priority=number % 2)
    for number in range(3)
]


def test_priorities_are_open_too_until_they_are_told_apart():
    menu = RequestMenu(PRIORITIES, [1, 1, 1])
    open_, *_ = parts = [menu.everything, *menu.everything.split("priority")]
    assert [part.bits for part in parts] == [0b111, 0b101, 0b010]
    assert [fully_decided(part) for part in parts] == [False, True, True]
    with pytest.raises(ChoiceNeeded) as looked:
        OpenRequestHistory("r0", open_).priority  # noqa: B018 (reading is what is tested)
    assert looked.value.field == "priority"


def test_the_client_knows_the_place_and_the_importance_of_a_request():
    menu = RequestMenu(PRIORITIES, [1, 1, 1])
    history = BranchingHistory({"policy": "priority"}, "documented", "vllm")
    for name in ("r0", "r1"):
        history.open(name, menu.everything)
    history.narrow("r1", menu.candidates(0b010))
    assert [request.arrival for request in history.live.values()] == [0, 1]
    assert (history.live["r1"].priority, history.live["r1"].prompt) == (1, 3)


@pytest.mark.parametrize(
    "models", [SpyreModels("sound", {}, [131_072]), VllmModels("documented", {}, [64])]
)
def test_a_request_in_a_queue_is_an_ordinary_one_once_it_is_decided(models):
    menu = RequestMenu(ITEMS, [1] * 4)
    request = models.opened("r0", menu.candidates(0b0110))
    assert isinstance(request, models.open_sequence)
    assert (request.prompt, request.max_tokens, request.output_len) == (3, 4, ENDLESS)
    with pytest.raises(ChoiceNeeded):
        request.content  # noqa: B018 (reading is what is tested)
    moved = request._replace(computed=2, generated=1, output_len=2)
    assert moved.output_len == 2
    plain = models.decided(moved._replace(content=menu.candidates(0b0100)))
    assert not isinstance(plain, models.open_sequence)
    assert plain.content == (("shared", 2), ("r0", 1))
    assert (plain.prompt, plain.max_tokens, plain.output_len) == (3, 4, 4)
    assert (plain.computed, plain.generated) == (2, 1)
