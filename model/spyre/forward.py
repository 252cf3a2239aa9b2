"""What a step computes: one prefill chunk, or one token for every request that decodes.

Source: Spyre scheduling page, "Padding" and "Prefix caching"; releases where `Revision` says so.
"""

from msgspec.structs import replace

from ..members import without
from ..pool import Pool, blocks_for
from ..record import Record
from . import blocks, padding, tkv
from .config import SpyreConfig
from .revision import Revision
from .state import Sequence, State


class Forward(Record, frozen=True):
    """What the model runner computed, per request: real tokens, dummy blocks, blocks written
    (0: nothing real is written there); and the tkv that it reports."""

    scheduled: dict[str, int]
    left_pad_blocks: dict[str, int]
    slot_blocks: dict[str, list[int]]
    tkv: int


def compute_chunk(
    config: SpyreConfig, revision: Revision, state: State, one: Sequence
) -> tuple[State, Forward]:
    """One chunk of a single prompt (SPY-R04, SPY-R13). The request moves to the front of the
    running queue."""
    before = one
    waiting, running, pool = state.waiting, state.running, state.pool
    if one.computed == 0:
        waiting = without(waiting, one.id)
        one, pool = blocks.admit(config, state, one)
    else:
        running = without(running, one.id)
    start, end = padding.next_chunk(one.prompt, one.computed, config.chunk_size, config.block_size)
    counted, covered = progress(config, revision, one, end)
    one, pool = blocks.hold(config, one, covered, pool)
    computed = replace(one, computed=counted)
    pad = padding.left_padding_blocks(one.prompt, config.chunk_size, config.block_size)
    runner_tkv = prefill_tkv(config, revision, state, before, ends=computed.prefilled)
    running = (computed, *running)
    after = after_forward(state, waiting, running, True, runner_tkv, pool)
    shown = runner_tkv
    if not revision.stale_tkv:
        lengths = [member.computed for member in running if member.prefilled]
        shown = tkv.max_tkv(lengths, config.block_size)
    return after, Forward(
        {one.id: end - max(start, one.prefix_hit)},
        {one.id: pad},
        {one.id: written(config, computed, pad, end)},
        shown,
    )


def progress(config: SpyreConfig, revision: Revision, one: Sequence, end: int) -> tuple[int, int]:
    """Tokens that are counted as computed after the chunk that ends at `end`, and tokens that
    have a block then."""
    if not revision.counts_ahead:
        return end, end
    chunk = config.chunk_size
    pad = padding.left_padding_blocks(one.prompt, chunk, config.block_size) * config.block_size
    starts = one.computed == one.prefix_hit
    given = min(one.computed + chunk, one.prompt)
    if (
        starts
        and one.prefix_hit < chunk - pad
        and (not revision.whole_first_chunk or one.prefix_hit == 0)
    ):
        counted = min(one.computed + chunk - pad, one.prompt)
        return counted, given if revision.whole_first_chunk else counted
    return given, given


def written(config: SpyreConfig, one: Sequence, pad: int, end: int) -> list[int]:
    """The block written at each block position of the chunk that ends at `end`: none for
    padding, which is block 0 (SPY-R11), none for cached blocks that are only computed again
    (SPY-R56)."""
    last = pad + blocks_for(end, config.block_size)
    first = last - config.chunk_size // config.block_size
    hit = one.prefix_hit // config.block_size
    return [
        one.blocks[position - pad] if position - pad >= hit and position >= pad else 0
        for position in range(first, last)
    ]


def prefill_tkv(
    config: SpyreConfig, revision: Revision, state: State, one: Sequence, *, ends: bool
) -> int:
    """The tkv that a release reports after a chunk.

    Up to 2.3 the old one until the last chunk; only a first chunk that meets an empty decode
    batch starts a new count. From 2.4 on the prompt's length.
    """
    if revision.prompt_is_tkv:
        return one.prompt
    current = state.runner_tkv
    if one.computed == 0 and not state.decoding:
        current = one.prompt
    if ends:
        return tkv.tkv_after_last_chunk(one.prompt, current, config.block_size)
    return current


def compute_decode(config: SpyreConfig, state: State) -> tuple[State, Forward]:
    """One token for every decoding request (SPY-R22); a request that prefills goes to the end of
    the queue."""
    pool, block = state.pool, config.block_size
    grown: list[Sequence] = []
    prefilling: list[Sequence] = []
    for one in state.running:
        if one.computed < one.prompt:
            prefilling.append(one)
            continue
        length = one.computed + 1
        if length > len(one.blocks) * block or length % block == 0:  # a block begins, or fills up
            one, pool = blocks.hold(config, one, length, pool)
        grown.append(replace(one, computed=length))
    running = (*grown, *prefilling)
    names = [one.id for one in grown]
    lengths = [one.computed for one in grown]
    reached = tkv.max_tkv(lengths, block)
    after = after_forward(state, state.waiting, running, False, reached, pool)
    return after, Forward(
        dict.fromkeys(names, 1),
        dict(zip(names, tkv.left_pad_blocks(lengths, block), strict=True)),
        {one.id: [one.blocks[-1]] for one in grown},
        reached,
    )


def compute_nothing(state: State, *, after_choice: bool) -> tuple[State, Forward]:
    """An idle step: the scheduler forgets its tkv. `after_choice`: it had chosen a prefill, and
    takes the step for one."""
    return state._replace(tkv=0, last_step_was_prefill=after_choice), Forward({}, {}, {}, 0)


def after_forward(
    state: State,
    waiting: tuple[Sequence, ...],
    running: tuple[Sequence, ...],
    was_prefill: bool,
    reached: int,
    pool: Pool,
) -> State:
    """The state when the model runner has been at tkv `reached`."""
    return State(
        waiting,
        running,
        state.paused,
        was_prefill,
        reached,
        reached,
        pool,
        state.lost_blocks,
        state.aborted,
    )
