"""The step observation of the target protocol: everything that a target shows of one step."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

# No run has a count this large, and Python refuses to print a number of several thousand digits.
MOST = 10**15
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Difference = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Kind = Literal["prefill", "decode", "mixed", "idle"]
Reason = Literal["length", "eos", "aborted", "error"]
Ids = tuple[str, ...]


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message of a decision to the worker, which remembers all earlier messages. The reference
    page on formats describes each field.
    """

    computed: dict[str, Count]
    new: Ids = ()
    resumed: Ids = ()
    blocks: dict[str, tuple[tuple[Count, ...], ...]] = msgspec.field(default_factory=dict)
    tokens: dict[str, Count] = msgspec.field(default_factory=dict)
    dropped: Ids = ()
    copies: tuple[tuple[Count, Count], ...] = ()
    inputs: dict[str, tuple[Count, ...]] | None = None
    released: dict[str, tuple[Count, ...]] = msgspec.field(default_factory=dict)
    drafts: dict[str, Count] | None = None
    placeholders: Ids = ()


class CacheEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that tells a router how the prefix cache has changed. The reference page on formats
    describes each field. A block's name stands for the block's content and its group of the KV
    cache, and has no other meaning.
    """

    kind: Literal["stored", "removed", "cleared"]
    blocks: Ids = ()
    tokens: Count = 0
    block_size: Count = 0


class CacheEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events that a step publishes, in order, and how the cache has really changed since the
    last publication: the blocks that `entered` it, and those that `left` it. If no decision
    completes, the step publishes nothing, and all three are empty."""

    events: tuple[CacheEvent, ...] = ()
    entered: Ids = ()
    left: Ids = ()


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step after its completion; `None` marks a field that the target does not show.

    The reference page on formats describes each field. Token counts and throughputs are in tokens.
    `left_pad_blocks`, `free_blocks` and `reserved_blocks` are in blocks. Lists are in queue order,
    after finished requests have left.
    """

    kind: Kind
    scheduled: dict[str, Count]
    emitted: dict[str, Count] | None = None
    tkv: Count | None = None
    left_pad_blocks: dict[str, Difference] | None = None
    waiting: Ids | None = None
    running: Ids | None = None
    prefilling: Ids | None = None
    paused: Ids | None = None
    preempted: Ids | None = None
    finished: dict[str, Reason] | None = None
    computed: dict[str, Count] | None = None
    prefix_hit: dict[str, Count] | None = None
    blocks: dict[str, tuple[Count, ...]] | None = None
    free_blocks: Count | None = None
    reserved_blocks: Count | None = None
    slot_blocks: dict[str, tuple[Count, ...]] | None = None
    prompt_throughput: Count | None = None
    decode_throughput: Count | None = None
    emitted_at: dict[str, Count] | None = None
    parked: Ids | None = None
    encoder_inputs: dict[str, tuple[Count, ...]] | None = None
    encoder_dropped: Ids | None = None
    group_blocks: dict[str, tuple[tuple[Count, ...], ...]] | None = None
    sent: Sent | None = None
    completes: bool | None = None
    deferred: Ids | None = None
    handed_over: Ids | None = None
    over: bool | None = None
    cache_events: CacheEvents | None = None
    masks: dict[str, tuple[Difference | None, ...]] | None = None
    grammars: dict[str, Count] | None = None
    group_free_blocks: tuple[Count, ...] | None = None


# `sent` has fields of a step, so `rename_requests` renames it separately.
NAMES_NO_REQUEST = ("encoder_dropped", "sent", "cache_events")


def rename_requests(step: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    others = {
        field: value if field in NAMES_NO_REQUEST else _renamed(value, names)
        for field, value in step.items()
    }
    if "sent" in step:
        others["sent"] = rename_requests(step["sent"], names)
    return others


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(name, name): entry for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [names.get(name, name) for name in value]
    return value


FIELDS = frozenset(Step.__struct_fields__)
REQUIRED = frozenset({"kind", "scheduled"})
# A step that decodes nothing may have no tkv. The field may then be absent or null.
NULLABLE = frozenset({"tkv"})
