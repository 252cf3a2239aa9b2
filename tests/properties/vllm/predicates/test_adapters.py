"""Slots for LoRA adapters, by example: too many adapters in a step, a request held up."""

import pytest

from schedproof.properties.vllm.predicates import adapters, queues

from .build import book, ran, request

SLOT = {"cache_partitions": True, "max_loras": 1}


def using(name, adapter, **more):
    return request(name, partition=(adapter, None), **more)


@pytest.mark.parametrize(
    ("others", "slots", "breaks"),
    [
        (("x", "y"), 1, True),
        (("x", "x"), 1, False),
        (("x", None), 1, False),
        (("x", "y"), 2, False),
    ],
)
def test_a_step_uses_no_more_adapters_than_there_are_slots(others, slots, breaks):
    first, second = others
    keys = {**SLOT, "max_loras": slots}
    history = book(using("a", first), using("b", second), running="ab", **keys)
    broken = adapters.too_many_adapters(history, ran({"a": 3, "b": 3}, "ab"))
    assert broken == ("the step uses 2 adapters (x, y) > 1" if breaks else None)


def test_a_request_without_a_slot_holds_up_no_request_behind_it():
    accounts = (using("a", "x", computed=6, emitted=1), using("b", "y"), using("c", None))
    history = book(*accounts, running="a", **SLOT)
    step = ran({"a": 1}, "a", "bc", free_blocks=6)
    assert adapters.one_lacks_a_slot(history, step)
    assert adapters.passes(history, step)
    assert str(adapters.held_up(history, step)).startswith("c waits although")
    assert queues.overtaken(history, ran({"a": 1, "c": 6}, "ac", "b")) is None
    last = book(*accounts[:2], running="a", **SLOT)
    assert adapters.held_up(last, step) is None


@pytest.mark.parametrize(("free", "breaks"), [(2, False), (3, True)])
def test_whichever_request_is_first_one_is_admitted_if_each_has_room(free, breaks):
    accounts = (
        using("a", "x", computed=6, emitted=1),
        using("b", "x", preemptions=1),
        using("c", "x", prompt=10),
    )
    history = book(*accounts, running="a", **SLOT)
    reported = queues.needless_wait(history, ran({"a": 1}, "a", "bc", free_blocks=free))
    assert (reported is not None) is breaks
