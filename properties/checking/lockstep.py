"""Lockstep: in every step, the target must make the same decision as the model of the same
release."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.observation import FIELDS, NULLABLE, REQUIRED, Step

COMPARED = (
    "kind",
    "scheduled",
    "emitted",
    "tkv",
    "left_pad_blocks",
    "waiting",
    "running",
    "prefilling",
    "paused",
    "preempted",
    "finished",
    "computed",
    "prefix_hit",
    "blocks",
    "slot_blocks",
    "free_blocks",
    "reserved_blocks",
    "prompt_throughput",
    "decode_throughput",
    "emitted_at",
    "parked",
    "encoder_inputs",
    "encoder_dropped",
    "group_blocks",
    "completes",
    "deferred",
    "handed_over",
    "over",
    "cache_events",
    "masks",
    "grammars",
    "group_free_blocks",
)
# There are several ways to tell a worker the same thing, so only rules judge this field.
NOT_COMPARED = frozenset({"sent"})
# Fields whose values are names of blocks.
NAMED = frozenset({"blocks", "slot_blocks", "group_blocks"})


def shown(step: Step, observes: frozenset[str]) -> Step:
    return replace(step, **dict.fromkeys(FIELDS - REQUIRED - observes))


def equal_at_sight(seen: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Return whether two observations have equal values in all fields that both show. If not, they
    may still be equivalent (see `differing`)."""
    for field in NULLABLE:
        if seen.get(field) != model.get(field):
            return False
    for field, value in model.items():
        if field in seen and seen[field] != value and field not in NOT_COMPARED:
            return False
    return list(seen["scheduled"]) == list(model["scheduled"])


class Differing(NamedTuple):
    """A field in which two steps differ, with its values normalized so that equivalent values are
    equal."""

    field: str
    first: Any
    second: Any

    @property
    def first_shown(self) -> str:
        return _shown(self.first)

    @property
    def second_shown(self) -> str:
        return _shown(self.second)


def differing(seen: Step, other: Step) -> Iterator[Differing]:
    """Return the fields that both steps show and in which they differ.

    Block numbers are names, so they are compared up to renaming. Block 0 is an exception if a step
    shows its padding, or shows only the blocks that it writes: then block 0 must be the same block
    in both steps. A request that a field does not list counts as having nothing computed, cached or
    held.
    """
    pads = seen.left_pad_blocks is not None or other.left_pad_blocks is not None
    padding = {0: 0} if pads or seen.blocks is None or other.blocks is None else {}
    names: tuple[dict[int, int], dict[int, int]] = (dict(padding), dict(padding))
    for field in _unequal(seen, other):
        if field not in NULLABLE and None in (getattr(seen, field), getattr(other, field)):
            continue
        own = _comparable(field, seen, names[0])
        expected = _comparable(field, other, names[1])
        if own != expected:
            yield Differing(field, own, expected)


def differences(seen: Step, model: Step) -> list[str]:
    return [
        f"{field.field}: target {field.first_shown}, model {field.second_shown}"
        for field in differing(seen, model)
    ]


def _unequal(seen: Step, other: Step) -> list[str]:
    """Return the fields that are not literally equal. In most steps there are none.

    Some of these fields may still be equivalent: the order of the scheduled requests, the tkv of
    steps of different kinds, and block names.
    """
    unequal = [field for field in COMPARED if getattr(seen, field) != getattr(other, field)]
    in_order = seen.kind == other.kind and list(seen.scheduled) == list(other.scheduled)
    if in_order and NAMED.isdisjoint(unequal):
        return unequal
    suspects = {*unequal, "scheduled", "tkv", *NAMED}
    return [field for field in COMPARED if field in suspects]


def _comparable(field: str, step: Step, names: dict[int, int]) -> Any:
    value = getattr(step, field)
    if field == "tkv":
        return (value or 0) if step.kind != "idle" else 0
    if field == "group_blocks":  # 0 is the null block
        return {
            request: [
                [names.setdefault(block, len(names)) if block else None for block in table]
                for table in value[request]
            ]
            for request in sorted(value)
            if value[request]
        }
    if field == "cache_events":  # the names, and the division into events, are the target's own
        return {"entered": len(value.entered), "left": len(value.left)}
    if field in NAMED:
        return {
            request: [names.setdefault(block, len(names)) for block in value[request]]
            for request in sorted(value)
            if value[request]
        }
    if field == "scheduled":
        return list(value.items())
    if field == "preempted":
        return tuple(sorted(value))
    if field in ("computed", "prefix_hit"):
        return {request: tokens for request, tokens in value.items() if tokens}
    return value


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
