"""Compute a step: one prefill chunk, or one token for each decoding request."""

from msgspec.structs import replace

from ..members import Record, without
from ..pool import Pool
from . import blocks, documented
from .config import SpyreConfig
from .revision import Revision
from .state import Sequence, State


class Forward(Record, frozen=True):
    """The result of the model runner: its tkv and, for each request, the number of real tokens, the
    number of dummy blocks, and the blocks written (0 is the dummy block)."""

    scheduled: dict[str, int]
    left_pad_blocks: dict[str, int]
    slot_blocks: dict[str, list[int]]
    tkv: int


def compute_chunk(
    config: SpyreConfig, revision: Revision, state: State, before: Sequence
) -> tuple[State, Forward]:
    """Compute one chunk of a single prompt (SPY-R04, SPY-R13), and move its request to the front of
    the running queue."""
    request = before
    waiting, running, pool = state.waiting, state.running, state.pool
    if request.computed == 0:
        waiting = without(waiting, request.id)
        request, pool = blocks.admit(config, state, request)
    else:
        running = without(running, request.id)
    chunk, block = config.chunk_size, config.block_size
    start, end = documented.next_chunk(request.prompt, request.computed, chunk, block)
    counted, covered = revision.progress(config, request, end)
    request, pool = blocks.hold(config, request, covered, pool)
    computed = replace(request, computed=counted)
    pad = documented.left_padding_blocks(request.prompt, chunk, block)
    running = (computed, *running)
    tkv = revision.tkv_after_chunk(config, state, before, running)
    after = after_forward(state, waiting, running, True, tkv, pool)
    return after, Forward(
        {request.id: end - max(start, request.prefix_hit)},
        {request.id: pad},
        {request.id: documented.written(config, computed, pad, end)},
        tkv,
    )


def compute_decode(config: SpyreConfig, state: State) -> tuple[State, Forward]:
    """Compute one token for each decoding request (SPY-R22). A request in its prefill moves to the
    end of the queue."""
    pool, block = state.pool, config.block_size
    grown: list[Sequence] = []
    prefilling: list[Sequence] = []
    for request in state.running:
        if request.computed < request.prompt:
            prefilling.append(request)
            continue
        length = request.computed + 1
        # A block begins or becomes full.
        if length > len(request.blocks) * block or length % block == 0:
            request, pool = blocks.hold(config, request, length, pool)
        grown.append(replace(request, computed=length))
    running = (*grown, *prefilling)
    names = [request.id for request in grown]
    lengths = [request.computed for request in grown]
    tkv = documented.max_tkv(lengths, block)
    after = after_forward(state, state.waiting, running, False, tkv, pool)
    return after, Forward(
        dict.fromkeys(names, 1),
        dict(zip(names, documented.left_pad_blocks(lengths, block), strict=True)),
        {request.id: [request.blocks[-1]] for request in grown},
        tkv,
    )


def compute_nothing(state: State, *, after_choice: bool) -> tuple[State, Forward]:
    """Take an idle step, in which the scheduler forgets its tkv. With `after_choice`, the scheduler
    had chosen a prefill, so it counts this step as a prefill."""
    return state._replace(tkv=0, last_step_was_prefill=after_choice), Forward({}, {}, {}, 0)


def after_forward(
    state: State,
    waiting: tuple[Sequence, ...],
    running: tuple[Sequence, ...],
    was_prefill: bool,
    tkv: int,
    pool: Pool,
) -> State:
    """Return the state after the model runner has reported `tkv`."""
    return State(
        waiting,
        running,
        state.paused,
        was_prefill,
        tkv,
        tkv,
        pool,
        state.lost_blocks,
        state.aborted,
    )
