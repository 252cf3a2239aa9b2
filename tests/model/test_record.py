"""Records are fixed once made, and cheap."""

import gc

import pytest

from schedproof.model.llmservingsim import state as llmservingsim
from schedproof.model.nano_vllm import state as nano_vllm
from schedproof.model.record import Record
from schedproof.model.spyre import state as spyre
from schedproof.model.spyre.forward import Forward
from schedproof.model.spyre.state import Decision
from schedproof.model.vllm import state as vllm

STATES = (spyre, vllm, nano_vllm, llmservingsim)
RECORDS: list[Record] = [
    *[system.Sequence("a", 5, 3, 2) for system in STATES],
    *[system.State() for system in STATES],
    Forward({}, {}, {}, 0),
    Decision("idle"),
]
NAMES = [f"{type(one).__module__.split('.')[2]}-{type(one).__name__}" for one in RECORDS]


@pytest.mark.parametrize("one", RECORDS, ids=NAMES)
def test_a_record_cannot_be_changed_and_a_changed_one_is_another(one):
    field = one.__struct_fields__[0]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(one, field, "new")
    other = one._replace(**{field: "new"})
    assert getattr(other, field) == "new"
    assert other != one
    assert one == one._replace()


@pytest.mark.parametrize("one", RECORDS, ids=NAMES)
def test_the_garbage_collector_does_not_follow_a_record(one):
    assert not gc.is_tracked(one)


def test_a_record_without_fields_cannot_be_given_any():
    with pytest.raises(AttributeError):
        Record().size = 1  # type: ignore[attr-defined]
