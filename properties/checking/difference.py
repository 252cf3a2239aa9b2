"""Differences between two targets that got the same requests, classified by how serious they are.

A step may differ in many fields. The class of the difference is that of the most serious field. Two
differences count as one if the same fields of that class differ, whatever the values are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...model.observation import Step
from ..rules.predicate import Broken
from .failure_signature import shape
from .lockstep import Differing, differing

CRASH, HANG, REFUSAL = "crash", "hang", "refusal"
DECISION, ORDER, PADDING, BOOKKEEPING = "decision", "order", "padding", "bookkeeping"
DETAILS = "details"
# The fields of a decision that determine its other fields.
CAUSES = ("scheduled", "preempted", "paused")
SHOWN_MEMBERS = 12
# The classes, the most serious first, each with its meaning.
CLASSES: Mapping[str, str] = {
    CRASH: "one of them crashes, the other does not",
    HANG: "one does not answer in time, the other answers or crashes",
    REFUSAL: "one accepts a request, an abort or a configuration that the other refuses",
    DECISION: "which requests run, which wait, and how much is computed",
    ORDER: "the same requests, in another order",
    PADDING: "the positions that are computed or written",
    BOOKKEEPING: "what is counted, cached or held",
    DETAILS: "the numbers of blocks, or the messages to workers and routers",
}
# Classes of differences that change no visible decision.
HARMLESS = (ORDER, PADDING, BOOKKEEPING, DETAILS)
PADDING_FIELDS = ("tkv", "left_pad_blocks", "slot_blocks")
BOOKKEEPING_FIELDS = (
    *("computed", "prefix_hit", "blocks", "free_blocks", "reserved_blocks"),
    *("prompt_throughput", "decode_throughput"),
)
# Steps that mean the same may differ in these fields, so they are compared only between two
# versions of one scheduler. There, a difference matters: which block is taken first decides which
# content is evicted first.
DETAIL_FIELDS = ("blocks", "slot_blocks", "group_blocks", "sent", "cache_events")


class Difference(NamedTuple):
    """The first step in which two targets differ.

    Attributes:
        kind: one of CLASSES.
        shape: a signature; differences with the same signature count as one.
        step: its number, from 0.
        message: one sentence about the fields or the answers.
        fields: every field that differs, with both values; empty if one target did not step.
        words: sentences that describe the difference.
        steps: the step of each target; None for a target that took none.
        details: traceback or stderr of a crash.
    """

    kind: str
    shape: str
    step: int
    message: str
    fields: tuple[Differing, ...] = ()
    words: tuple[str, ...] = ()
    steps: tuple[Step | None, Step | None] = (None, None)
    details: str = ""

    @property
    def breaks_rule(self) -> bool:
        """Return whether the first target crashed or hung, which also breaks a rule."""
        return self.kind in (CRASH, HANG) and not self.message.startswith("B")


def of_steps(number: int, first: Step, second: Step) -> Difference | None:
    """Return how two steps differ in the fields that both show, or None if these fields are
    equal."""
    fields = tuple(differing(first, second))
    if not fields:
        return None
    classes = {field.field: class_of(field) for field in fields}
    kind = next(name for name in CLASSES if name in classes.values())
    grave = [field for field in fields if classes[field.field] == kind]
    words = tuple(f"{field.field}: {in_words(field)}" for field in grave)
    return Difference(
        kind, f"{kind}: {_cause(grave)}", number, "; ".join(words), fields, words, (first, second)
    )


def of_details(number: int, first: Step, second: Step) -> Difference | None:
    """Return how two steps differ in details, or None if they do not. The caller has checked that
    `of_steps` finds no difference."""
    fields = tuple(
        Differing(name, *(msgspec.to_builtins(getattr(step, name)) for step in (first, second)))
        for name in DETAIL_FIELDS
        if getattr(first, name) != getattr(second, name)
    )
    if not fields:
        return None
    words = tuple(f"{field.field}: {in_words(field)}" for field in fields)
    what = f"{DETAILS}: {', '.join(field.field for field in fields)}"
    return Difference(DETAILS, what, number, "; ".join(words), fields, words, (first, second))


def _cause(grave: Sequence[Differing]) -> str:
    """Return the fields that cause the difference. Two differences with the same causes count as
    one.

    If the steps schedule different requests or numbers of tokens, then their queues, kinds and
    emitted tokens differ only as a consequence.
    """
    by_name = {field.field: field for field in grave}
    causes = [name for name in by_name if name in CAUSES] or list(by_name)
    if "scheduled" in causes and not _order_only(by_name["scheduled"]):
        field = by_name["scheduled"]
        who = dict(field.first).keys() == dict(field.second).keys()
        causes[causes.index("scheduled")] = (
            "how many are scheduled" if who else "which are scheduled"
        )
    return ", ".join(causes)


def of_answers(
    kind: str, number: int, message: str, requests: Iterable[str], details: str = ""
) -> Difference:
    """Return the difference between a target that crashed or refused and one that did not.

    `message` says which target did so, and how.
    """
    same = shape(Broken(kind, number, message), requests)
    return Difference(kind, same, number, message, words=(message,), details=details)


def class_of(field: Differing) -> str:
    if field.field in PADDING_FIELDS:
        return PADDING
    if field.field in BOOKKEEPING_FIELDS:
        return BOOKKEEPING
    return ORDER if _order_only(field) else DECISION


def _order_only(field: Differing) -> bool:
    both = isinstance(field.first, list | tuple) and isinstance(field.second, list | tuple)
    return both and sorted(field.first) == sorted(field.second)


def in_words(field: Differing) -> str:
    if _order_only(field):
        return f"in the order {plain(field.first)} on A, {plain(field.second)} on B"
    first, second = (
        without_shared(field.first, field.second),
        without_shared(field.second, field.first),
    )
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _of_mappings(first, second)
    if isinstance(first, tuple):
        sides = (("A", first), ("B", second))
        return ", ".join(f"{plain(names)} only on {side}" for side, names in sides if names)
    return f"{plain(first)} on A, {plain(second)} on B"


def without_shared(value: Any, other: Any) -> Any:
    """Return the entries of `value` that `other` lacks. Return numbers and words unchanged."""
    if isinstance(value, list) and isinstance(other, list):  # the pairs of `scheduled`, in order
        value, other = dict(value), dict(other)
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return {name: own for name, own in value.items() if other.get(name) != own}
    if isinstance(value, tuple) and isinstance(other, tuple):
        return tuple(name for name in value if name not in other)
    return value


def _of_mappings(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    both = [
        f"{name} {plain(first[name])} on A and {plain(second[name])} on B"
        for name in first
        if name in second
    ]
    for side, own, other in (("A", first, second), ("B", second, first)):
        alone = {name: value for name, value in own.items() if name not in other}
        both += [f"{plain(alone)} only on {side}"] if alone else []
    return ", ".join(both)


def plain(value: Any) -> str:
    """Return a field's value as readable text, with long lists of blocks shortened."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        parts = [plain(dict([item])) if isinstance(item, tuple) else str(item) for item in value]
        if len(parts) > SHOWN_MEMBERS:
            parts[SHOWN_MEMBERS - 1 :] = [f"… ({len(value)})"]
        return ", ".join(parts) if isinstance(value, tuple) else f"[{' '.join(parts)}]"
    return str(value)
