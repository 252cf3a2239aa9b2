"""A step observation is read strictly, and does not change."""

from pathlib import Path

import msgspec
import pytest

import schedproof
from schedproof.model.observation import FIELDS, NULLABLE, REQUIRED, Step
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

COUNTS = ("scheduled", "emitted", "computed", "prefix_hit", "emitted_at", "grammars")
NUMBERS = (*("tkv", "free_blocks", "reserved_blocks"), *("prompt_throughput", "decode_throughput"))
LISTS = (
    "deferred",
    "handed_over",
    "waiting",
    "running",
    "prefilling",
    "paused",
    "preempted",
    "parked",
    "encoder_dropped",
)
NUMBERED = ("blocks", "slot_blocks", "encoder_inputs")


def read(**changes):
    return msgspec.convert({"kind": "decode", "scheduled": {"a": 1}} | changes, Step)


def test_what_is_not_shown_is_none_and_is_not_written():
    step = read()
    shown = {name: getattr(step, name) for name in FIELDS}
    assert shown == dict.fromkeys(FIELDS) | {"kind": "decode", "scheduled": {"a": 1}}
    assert msgspec.to_builtins(step) == {"kind": "decode", "scheduled": {"a": 1}}


def test_only_kind_and_scheduled_are_always_there_and_only_tkv_may_be_null():
    assert {"kind", "scheduled"} == REQUIRED
    assert {"tkv"} == NULLABLE
    for plain in ({"kind": "idle"}, {"scheduled": {}}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(plain, Step)


def test_the_fields_are_those_of_the_protocol():
    assert {
        *("kind", "left_pad_blocks", "finished", "completes", "group_blocks", "sent", "over"),
        *(*COUNTS, *NUMBERS, *LISTS, *NUMBERED, "cache_events", "masks", "group_free_blocks"),
    } == FIELDS


def test_counts_are_not_negative():
    for name in COUNTS:
        assert getattr(read(**{name: {"a": 0}}), name) == {"a": 0}
        with pytest.raises(msgspec.ValidationError, match=name):
            read(**{name: {"a": -1}})
    for name in NUMBERS:
        assert getattr(read(**{name: 0}), name) == 0
        with pytest.raises(msgspec.ValidationError, match=name):
            read(**{name: -1})
    for name in NUMBERED:
        assert getattr(read(**{name: {"a": [0]}}), name) == {"a": (0,)}
        with pytest.raises(msgspec.ValidationError, match=name):
            read(**{name: {"a": [-1]}})


def test_queues_keep_their_order():
    for name in LISTS:
        assert getattr(read(**{name: ["b", "a"]}), name) == ("b", "a")


def test_a_step_does_not_change_and_is_written_by_name_only():
    with pytest.raises(AttributeError):
        setattr(read(), "kind", "idle")  # noqa: B010
    with pytest.raises(TypeError):
        Step("idle", {})


MODEL = Path(schedproof.__path__[0]) / "model"
OF_EVERY_SYSTEM = "ALL-"


def unnamed(system, *, of_every_system):
    """The checked rules of a system that no file of its model names."""
    code = "\n".join(path.read_text("utf-8") for path in (MODEL / system).glob("*.py"))
    rules = [rule.id for rule in load(system) if rule.checked]
    rules = [rule for rule in rules if rule.startswith(OF_EVERY_SYSTEM) == of_every_system]
    assert rules
    return [rule for rule in rules if rule not in code]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_model_names_each_rule_of_its_document(system):
    assert unnamed(system, of_every_system=False) == []


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim"])
def test_the_model_names_each_rule_of_every_system(system):
    assert unnamed(system, of_every_system=True) == []
