"""Members of queues, whatever the system."""

import gc

import pytest

from schedproof.model.llmservingsim import state as llmservingsim
from schedproof.model.members import Record, ending, find, without
from schedproof.model.nano_vllm import state as nano_vllm
from schedproof.model.scenario import Request
from schedproof.model.spyre import state as spyre
from schedproof.model.spyre.forward import Forward
from schedproof.model.spyre.state import Decision
from schedproof.model.systems import full_config, make_model
from schedproof.model.vllm import state as vllm
from schedproof.spec.systems import SYSTEMS

STATES = (spyre, vllm, nano_vllm, llmservingsim)
RECORDS: list[Record] = [
    *[system.Sequence("a", 5, 3, 2) for system in STATES],
    *[system.State() for system in STATES],
    Forward({}, {}, {}, 0),
    Decision("idle"),
]
NAMES = [f"{type(record).__module__.split('.')[2]}-{type(record).__name__}" for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_a_record_cannot_be_changed_and_a_changed_one_is_another(record):
    field = record.__struct_fields__[0]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(record, field, "new")
    other = record._replace(**{field: "new"})
    assert getattr(other, field) == "new"
    assert other != record
    assert record == record._replace()


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_the_garbage_collector_does_not_follow_a_record(record):
    assert not gc.is_tracked(record)


def test_a_record_without_fields_cannot_be_given_any():
    with pytest.raises(AttributeError):
        Record().size = 1  # type: ignore[attr-defined]


EVERY = [(system.name, revision) for system in SYSTEMS.values() for revision in system.revisions]


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
