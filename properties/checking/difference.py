"""Differences: where two targets that were asked the same do otherwise, sorted by what they mean.

A step may differ in many fields. It is called after the gravest of them, and two steps that differ
in the same fields of that class are one difference, whatever their numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model.observation import Step
from ..rules.predicate import Broken
from .failure_signature import shape
from .lockstep import Differing, differing

CRASH, HANG, REFUSAL = "crash", "hang", "refusal"
DECISION, ORDER, PADDING, BOOKKEEPING = "decision", "order", "padding", "bookkeeping"
# Of the fields of a decision those from which the others follow.
CAUSES = ("scheduled", "preempted", "paused")
SHOWN_MEMBERS = 12
# The gravest first, each with what it says.
CLASSES: Mapping[str, str] = {
    CRASH: "one raises or dies, the other does not",
    HANG: "one does not answer in time, the other does",
    REFUSAL: "one takes a request, an abort or a configuration that the other refuses",
    DECISION: "which requests run, which wait, and how much is computed",
    ORDER: "the same requests, in another order",
    PADDING: "the positions that are computed or written",
    BOOKKEEPING: "what is counted, cached or held",
}
# What changes no decision that can be seen.
HARMLESS = (ORDER, PADDING, BOOKKEEPING)
PADDING_FIELDS = ("tkv", "left_pad_blocks", "slot_blocks")
BOOKKEEPING_FIELDS = (
    *("computed", "prefix_hit", "blocks", "free_blocks", "reserved_blocks"),
    *("prompt_throughput", "decode_throughput"),
)


class Difference(NamedTuple):
    """The first step in which two targets differ.

    Attributes:
        kind: one of CLASSES.
        shape: what two differences have in common that are the same one.
        step: its number, from 0.
        message: the fields or the answers, in one sentence.
        fields: every field that differs, as each target shows it; none where one did not step.
        words: what that means, a sentence each.
        steps: the step on both, None where there is none.
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


def of_steps(number: int, first: Step, second: Step) -> Difference | None:
    """How two steps differ, on the fields that both show; None where they do not."""
    fields = tuple(differing(first, second))
    if not fields:
        return None
    classes = {one.field: class_of(one) for one in fields}
    kind = next(name for name in CLASSES if name in classes.values())
    grave = [one for one in fields if classes[one.field] == kind]
    words = tuple(f"{one.field}: {in_words(one)}" for one in grave)
    return Difference(
        kind, f"{kind}: {_same(grave)}", number, "; ".join(words), fields, words, (first, second)
    )


def _same(grave: Sequence[Differing]) -> str:
    """What two steps have in common that differ in the same way.

    Where another request is scheduled, or with more tokens, the queues, the kind of the step and
    the tokens that come out follow from that.
    """
    by_name = {one.field: one for one in grave}
    causes = [name for name in by_name if name in CAUSES] or list(by_name)
    if "scheduled" in causes and not _order_only(by_name["scheduled"]):
        one = by_name["scheduled"]
        who = dict(one.first).keys() == dict(one.second).keys()
        causes[causes.index("scheduled")] = (
            "how many are scheduled" if who else "which are scheduled"
        )
    return ", ".join(causes)


def of_answers(
    kind: str, number: int, message: str, requests: Iterable[str], details: str = ""
) -> Difference:
    """One target crashed or refused, and the other did not; `message` says which, and how."""
    same = shape(Broken(kind, number, message), requests)
    return Difference(kind, same, number, message, words=(message,), details=details)


def class_of(one: Differing) -> str:
    if one.field in PADDING_FIELDS:
        return PADDING
    if one.field in BOOKKEEPING_FIELDS:
        return BOOKKEEPING
    return ORDER if _order_only(one) else DECISION


def _order_only(one: Differing) -> bool:
    both = isinstance(one.first, list | tuple) and isinstance(one.second, list | tuple)
    return both and sorted(one.first) == sorted(one.second)


def in_words(one: Differing) -> str:
    """A field that differs: what only one side has, or both values."""
    if _order_only(one):
        return f"in the order {plain(one.first)} on A, {plain(one.second)} on B"
    first, second = only(one.first, one.second), only(one.second, one.first)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _of_mappings(first, second)
    if isinstance(first, tuple):
        sides = (("A", first), ("B", second))
        return ", ".join(f"{plain(names)} only on {side}" for side, names in sides if names)
    return f"{plain(first)} on A, {plain(second)} on B"


def only(value: Any, other: Any) -> Any:
    """What of a field's value is not the same in the other one; a number or a word as it is."""
    if isinstance(value, list) and isinstance(other, list):  # scheduled: pairs, in order
        value, other = dict(value), dict(other)
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return {name: one for name, one in value.items() if other.get(name) != one}
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
    """A field's value for a reader; long lists of blocks are cut."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        parts = [plain(dict([one])) if isinstance(one, tuple) else str(one) for one in value]
        if len(parts) > SHOWN_MEMBERS:
            parts[SHOWN_MEMBERS - 1 :] = [f"… ({len(value)})"]
        return ", ".join(parts) if isinstance(value, tuple) else f"[{' '.join(parts)}]"
    return str(value)
