"""Members of queues, whatever the system."""

import pytest

from schedproof.model.members import ending, find, without
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config, make_model
from schedproof.spec.systems import SYSTEMS

EVERY = [(one.name, revision) for one in SYSTEMS.values() for revision in one.revisions]


def request(name):
    return Request(id=name, arrival=0, prompt=((name, 5),), max_tokens=9)


@pytest.mark.parametrize(("system", "revision"), EVERY)
def test_a_request_that_is_told_to_ends_with_its_next_token(system, revision):
    model = make_model(system, revision, full_config(system, revision, {}))
    state = model.initial()
    for name in "ab":
        state = model.arrive(state, request(name))
    for _ in range(5):
        state, seen = model.step(state)
    assert "a" in seen["emitted"]
    assert ending(state, "none_there") == state
    state, seen = model.step(ending(state, "a"))
    while "a" not in seen["emitted"]:
        state, seen = model.step(state)
    assert seen["finished"] == {"a": "eos"}


@pytest.mark.parametrize(("system", "revision"), EVERY)
def test_who_waits_may_be_told_as_well(system, revision):
    model = make_model(system, revision, full_config(system, revision, {}))
    state = ending(model.arrive(model.initial(), request("a")), "a")
    _, seen = model.step(state)
    assert seen["finished"] == {"a": "eos"}


def test_members_are_found_and_left_out_by_their_ids():
    queue = tuple(request(name) for name in "abc")
    assert find(queue, "b") is queue[1]
    assert find(queue, "d") is None
    assert without(queue, "b") == (queue[0], queue[2])
