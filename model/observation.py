"""The step observation of the target protocol: everything that a target shows of one step."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

# No run has a count this large. Python refuses to print a much larger one.
MOST = 10**15
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Difference = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Kind = Literal["prefill", "decode", "mixed", "idle"]
Reason = Literal["length", "eos", "aborted", "error"]
Ids = tuple[str, ...]


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message of a decision to the worker, which remembers all earlier messages.

    `dropped`: the requests that the worker forgets before it reads the rest. `computed`: for each
    scheduled request, the number of tokens computed before the step. `new` and `resumed`: the
    scheduled requests that are sent in full, because the worker does not have them, or has an old
    version. `blocks`: for each request, a list of blocks for each group of the KV cache. The worker
    appends the list to the request's block table; if the request is sent in full, the list replaces
    the table. `tokens`: if tokens are sent to the first stage of a pipeline, how many tokens of
    each request this stage then knows, including drafts. `copies`: blocks that the worker copies
    before it computes the step, each as a pair of the block and the block that becomes its copy.
    `inputs`: for each request, the encoder inputs whose data the worker gets, by the number of
    their segment; a new request comes with these and no others. `released`: those whose data the
    worker then discards. `inputs` is null if it is not shown. `drafts`: for each request, how many
    drafts the worker verifies; null if it is not shown. `placeholders`: the requests whose drafts
    are placeholders, which the worker replaces with the drafts that it has proposed itself.
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
    """An event that tells a router how the prefix cache has changed. A block is named by what it
    holds, in which group of the KV cache; the names themselves have no meaning.

    `stored`: these `blocks`, which hold `block_size` tokens each, can be found from now on; the
    event lists `tokens` tokens. `removed`: these blocks can no longer be found. `cleared`: no block
    can be found any more.
    """

    kind: Literal["stored", "removed", "cleared"]
    blocks: Ids = ()
    tokens: Count = 0
    block_size: Count = 0


class CacheEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events published in a step, in order, and what has really changed since events were last
    published: the blocks that `entered` the prefix cache, and those that `left` it. All are empty
    if nothing is published because no decision completes."""

    events: tuple[CacheEvent, ...] = ()
    entered: Ids = ()
    left: Ids = ()


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step after its completion; `None` marks a field that the target does not show.

    `emitted_at`: for each request, the position in its output, from 0, of the first token emitted
    in this step. `parked`: the waiting requests that hold blocks, either for a load (under way or
    done) or between two turns of a session. `deferred`: the waiting requests that a router holds
    back until they are due. `handed_over`: the requests that another instance will decode. `over`:
    whether the simulation ends. `encoder_inputs`: the segments of each prompt that an encoder
    computes in this step, numbered from 0. `encoder_dropped`: the names of segments whose outputs
    are no longer kept. `group_blocks`: if the KV cache has several groups, a block table for each
    group except the first, whose table is in `blocks`; 0 stands for a block that was given back.
    `group_free_blocks`: the free blocks of each of these groups, if each has its own pool.
    `sent`: the decision's message to the worker. `completes`: whether a decision completes in this
    step. Only recordings of a server with several decisions in flight need this field; when
    schedproof drives the scheduler, the protocol determines when decisions complete.
    `cache_events`: what the step tells routers about the prefix cache.

    `masks`: the masks of each request that has a grammar and samples in this step's decision. There
    is one mask for each draft, and one for the token after the drafts. A mask is shown as a number
    of output tokens: it allows what the grammar allows after that many tokens. null stands for a
    mask that allows every token, and -1 for one that was not made from the request's grammar.
    `grammars`: for each request with a grammar that gets tokens in this step, how many tokens its
    grammar has accepted so far.

    Token counts and throughputs are in tokens. `left_pad_blocks`, `free_blocks` and
    `reserved_blocks` are in blocks. Lists are in queue order, after finished requests have left.
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
    """Return the step with requests renamed as in `names`."""
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
