"""Parked requests: a connector loads their keys and values while other requests run.

Source: release 0.33.0, comments of the scheduler on asynchronous KV loads. A parked request has
blocks but does not run. It is never preempted, and no other request is preempted to make room for
it.
"""

from collections.abc import Callable, Iterable

from .. import allocator
from ..members import changed, without
from ..pool import Pool, blocks_for, fits, forget, unheld
from . import group_loads, in_flight, kv_cache, kv_groups, queue
from .config import VllmConfig
from .queue import Plan
from .state import Flight, Sequence, State

# (configuration, plan, request, its hit, the tokens to be loaded) -> may the request be parked?
HasRoom = Callable[[VllmConfig, Plan, Sequence, tuple[int, ...], int], bool]
# (configuration, pool, request, requests that may hold its blocks) -> the pool without its blocks
Free = Callable[[VllmConfig, Pool, Sequence, tuple[Sequence, ...]], Pool]


def ready(config: VllmConfig, plan: Plan, sequence: Sequence) -> tuple[Sequence | None, Plan]:
    """Return the request and the plan if the request can be admitted: its load has finished, or it
    needs no load.

    While the request is loading (V1-R20), or while the connector has no answer yet, return None
    instead of the request.
    """
    if sequence.loading is not None:
        return None, plan
    if sequence.deferrals and not (sequence.was_loaded or sequence.blocks):
        return None, plan._replace(waiting=defer(plan.waiting, sequence))
    if not sequence.blocks:
        return sequence, plan
    loaded, pool = finish_load(config, plan.pool, sequence, plan.holders)
    others = tuple([loaded if other is sequence else other for other in plan.parked])
    return loaded, plan._replace(pool=pool, parked=others)


def parked(
    config: VllmConfig,
    plan: Plan,
    sequence: Sequence,
    hit: tuple[int, ...],
    loaded: int,
    has_room: HasRoom,
) -> Plan | None:
    """Return the plan with a request parked until `loaded` tokens arrive, or None if there is no
    room."""
    if not has_room(config, plan, sequence, hit, loaded):
        return None
    sequence, pool = park(config, plan.pool, sequence, hit, loaded)
    return plan._replace(
        waiting=without(plan.waiting, sequence.id),
        parked=queue.parked(config, plan.parked, sequence),
        pool=pool,
    )


def offered(config: VllmConfig, sequence: Sequence, hit: tuple[int, ...]) -> int:
    """Return how many tokens after the `hit` the connector offers for a request (V1-R27). Unless it
    has all tokens of the request, it offers only those in whole blocks. After a load, a request
    gets no second offer."""
    if sequence.was_loaded:
        return 0
    whole = sequence.external // config.hit_unit * config.hit_unit
    tokens = sequence.num_tokens if sequence.external >= sequence.num_tokens else whole
    if config.loads_in_step:
        tokens = min(tokens, sequence.num_tokens - 1)  # one token remains for the step
    return max(tokens - len(hit) * config.block_size, 0)


def has_room(
    config: VllmConfig, plan: Plan, sequence: Sequence, hit: tuple[int, ...], tokens: int
) -> bool:
    """Return whether there are blocks for the `hit` of a request and the `tokens` to load.

    Some blocks must stay free: those that other parked requests and prefills still need, and those
    for the lookahead in the request's own first step. A load must not take these, because a parked
    request makes no progress and cannot be preempted (V1-R21). For the same reason, there must be
    room for all tokens of the request, even without `reserve_full_isl`.
    """
    reserve = config.watermark_blocks if plan.running else 0
    covered = len(hit) * config.block_size + tokens
    missing = unheld(plan.pool, hit) - len(hit)
    whole, load = group_loads.missing(config, plan.pool, sequence, len(hit), covered)
    if not has_room_for_all(config, plan.pool, sequence, missing + reserve + whole):
        return False
    needed = blocks_for(kv_cache.slots(config, covered), config.block_size) + missing + load
    promised = promised_blocks(config, (*plan.running, *plan.parked))
    return fits(plan.pool, needed + reserve + promised)


def park(
    config: VllmConfig, pool: Pool, sequence: Sequence, hit: tuple[int, ...], tokens: int
) -> tuple[Sequence, Pool]:
    covered = len(hit) * config.block_size + tokens
    sequence, pool = allocator.start(pool, sequence, hit, config.block_size)
    if config.more_groups:
        sequence, pool = group_loads.begin(config, pool, sequence, covered)
    else:
        sequence, pool = allocator.hold(pool, sequence, covered, config.block_size)
    parked = sequence._replace(
        computed=covered, prefix_hit=0, was_loaded=True, loading=sequence.load_steps
    )
    return parked._replace(arrives=tokens_after_load(config, parked, hit)), pool


def loads_now(config: VllmConfig, sequence: Sequence, tokens: int) -> Sequence:
    """Return a request that has just joined, and loads `tokens` tokens after its hit in the same
    step. If the load fails, its `arrives` is the number of tokens that were loaded correctly."""
    hit = sequence.blocks[: sequence.computed // config.block_size]
    covered = sequence.computed + tokens
    loaded = sequence._replace(computed=covered, prefix_hit=covered, was_loaded=True)
    right = tokens_after_load(config, loaded, hit)
    fails_at = sequence.fails_at if right < covered else None
    return loaded._replace(arrives=right, fails_at=fails_at)


def fall_back(
    config: VllmConfig, state: State, flight: Flight, computing: tuple[Sequence, ...]
) -> tuple[State, Flight, dict[str, str]]:
    """Handle synchronous loads that fail in this step. Return the state, the tokens that the step
    yields, and a map from each request that ends to the reason for its end.

    If the load of a block fails, each request that found or loaded this block continues from the
    start of the block (V1-R92), unless the policy ends the request (V1-R28). The block and the
    later blocks of these requests can no longer be found.
    """
    size = config.block_size
    bad = {
        block
        for sequence in computing
        if sequence.id in flight and sequence.was_loaded and sequence.fails_at is not None
        for block in _given(config, sequence)[sequence.arrives // size :]
    }
    if not bad:
        return state, flight, {}
    pool, back = state.pool, {}
    for sequence in computing:
        places = [n for n, block in enumerate(_given(config, sequence)) if block in bad]
        if sequence.id not in flight or not places:
            continue
        first = places[0]
        for number in range(first, sequence.published):
            pool = forget(pool, sequence.name(number, size), sequence.blocks[number])
        back[sequence.id] = sequence._replace(
            computed=first * size, published=min(first, sequence.published), fails_at=None
        )
    running = changed(state.running, back)
    state = state._replace(pool=pool, running=running)
    remaining = {name: coming for name, coming in flight.items() if name not in back}
    over = [s for s in running if s.id in back and config.ends_on_failed_loads]
    for sequence in over:
        state = state._replace(running=without(state.running, sequence.id))
        state = free(config, state, sequence)
    return state, remaining, {sequence.id: "error" for sequence in over}


def _given(config: VllmConfig, sequence: Sequence) -> tuple[int, ...]:
    """Return the blocks of the tokens that a request found or loaded when it joined."""
    return sequence.blocks[: blocks_for(sequence.prefix_hit, config.block_size)]


def has_room_for_all(config: VllmConfig, pool: Pool, sequence: Sequence, beside: int) -> bool:
    """Return whether the pool has room for all known tokens of a request and for `beside` more
    blocks."""
    whole = blocks_for(kv_cache.slots(config, sequence.num_tokens), config.block_size)
    return fits(pool, whole + beside)


def tokens_after_load(config: VllmConfig, sequence: Sequence, hit: tuple[int, ...]) -> int:
    """Return how many tokens of a parked request count as computed once its load has finished.

    These are all tokens before the block in which the load fails (V1-R26). With several groups, no
    token counts if the load fails, because the connector then reports only that it has failed.
    """
    if sequence.fails_at is None or sequence.fails_at >= sequence.computed:
        return sequence.computed
    if config.more_groups:
        return 0
    intact = max(len(hit), sequence.fails_at // config.block_size)
    return min(sequence.computed, intact * config.block_size)


def defer(waiting: tuple[Sequence, ...], sequence: Sequence) -> tuple[Sequence, ...]:
    """Return the queue after setting a request aside because the connector does not yet know how
    many of its tokens are stored. Other requests may overtake it."""
    later = sequence._replace(aside=True, deferrals=sequence.deferrals - 1)
    return tuple([later if other is sequence else other for other in waiting])


def promised_blocks(config: VllmConfig, holders: Iterable[Sequence]) -> int:
    """Return how many blocks these requests still need for all their known tokens and the lookahead
    after them. If these blocks were not reserved, parked requests could wait for one another
    forever (ALL-R10)."""
    needed = 0
    for sequence in holders:
        tokens = kv_cache.slots(config, sequence.num_tokens)
        needed += max(allocator.missing_blocks(sequence, tokens, config.block_size), 0)
        if config.more_groups:
            needed += group_loads.promised(config, sequence, tokens)
    return needed


def finish_load(
    config: VllmConfig, pool: Pool, sequence: Sequence, holders: tuple[Sequence, ...]
) -> tuple[Sequence, Pool]:
    """Return the pool, and the request after its load has finished. Its blocks can now be found.

    The last token remains to be computed, because computing it yields the next one. If the load
    failed from the first token on, the request has no blocks left.
    """
    if not sequence.arrives:
        pool = kv_cache.free(config, pool, keep_hit(config, sequence), holders)
        return sequence._replace(blocks=(), published=0, tables=(), full=()), pool
    if config.more_groups and config.enable_prefix_caching:
        sequence, pool = group_loads.publish(config, pool, sequence)
    elif config.enable_prefix_caching:
        sequence, pool = allocator.publish_full(
            pool, sequence, sequence.computed, config.block_size
        )
    return sequence._replace(computed=min(sequence.computed, sequence.num_tokens - 1)), pool


def keep_hit(config: VllmConfig, sequence: Sequence) -> Sequence:
    """Return a request whose load has failed as a whole. It keeps the tokens of its hit, which stay
    in the cache."""
    return sequence._replace(computed=sequence.computed or sequence.published * config.block_size)


def admit(
    config: VllmConfig,
    pool: Pool,
    sequence: Sequence,
    hit: tuple[int, ...],
    tokens: int,
    someone_runs: bool,
) -> tuple[Sequence, Pool] | None:
    """Return a loaded request with room for `tokens` more tokens, or None if too few blocks are
    free. `hit` must be empty."""
    assert not hit, "it has its blocks"
    reserve = config.watermark_blocks if someone_runs else 0
    covered = kv_cache.slots(config, sequence.computed + tokens)
    if config.reserve_full_isl:
        covered = max(sequence.num_tokens, covered)
    missing = max(allocator.missing_blocks(sequence, covered, config.block_size), 0)
    if config.more_groups:
        missing = group_loads.missing_to_go_on(config, sequence, missing, tokens)
    if not fits(pool, missing + reserve):
        return None
    return kv_cache.hold(config, pool, sequence._replace(prefix_hit=sequence.computed), tokens)


def in_line(config: VllmConfig, state: State) -> tuple[Sequence, ...]:
    """Return all waiting requests in order, those that hold blocks first."""
    if config.policy == "priority":
        return tuple(sorted((*state.parked, *state.waiting), key=queue.importance))
    return (*state.parked, *state.waiting)


def is_written(flights: tuple[Flight, ...], sequence: Sequence) -> bool:
    """Return whether a decision in flight still writes to the blocks of a request. Until it
    completes, no load may fill these blocks, because the order of the two writes would be undefined
    (V1-R23)."""
    return in_flight.is_still_computed(flights, sequence)


def send_or_free(config: VllmConfig, state: State, sequence: Sequence) -> State:
    """Return the state after the last token of a request. Its blocks are either freed, or sent from
    the next step on and freed afterwards (V1-R25)."""
    state, sequence = without_slid_blocks(config, state, sequence)
    if sequence.send_steps is None:
        return free(config, state, sequence)
    return free(config, state, sequence._replace(loading=sequence.send_steps + 1))


def without_slid_blocks(
    config: VllmConfig, state: State, sequence: Sequence
) -> tuple[State, Sequence]:
    """Take from an ended request the blocks that its windows no longer cover, because these blocks
    are not sent. Return the state and the request. A request that is being loaded keeps these
    blocks. So does a request that the worker is computing, because it gave back such blocks before
    its step."""
    if not (sequence.tables and sequence.computed) or sequence.loading is not None:
        return state, sequence
    if config.depth == 1 and is_written(state.in_flight, sequence):
        return state, sequence
    sequence, pool = kv_groups.without_slid_blocks(config, state.pool, sequence, state.holders)
    return state._replace(pool=pool), sequence


def abort(config: VllmConfig, state: State, sequence: Sequence) -> State:
    """Return the state after an abort. If the request's blocks are being loaded or sent, they
    become free when the load or the sending ends (V1-R25)."""
    state, sequence = without_slid_blocks(config, state, sequence)
    if sequence.send_aborted and sequence.send_steps is not None and sequence.blocks:
        steps = max(sequence.loading or 0, sequence.send_steps)
        sequence = sequence._replace(loading=steps)
    return free(config, state, sequence)


def free(config: VllmConfig, state: State, sequence: Sequence) -> State:
    """Return the state in which an ended request's blocks become free once nothing uses them."""
    sequence = keep_hit(config, sequence)
    if sequence.loading is not None or is_written(state.in_flight, sequence):
        later = sequence._replace(
            written_by=0 if sequence.loading is not None else len(state.in_flight)
        )
        return state._replace(leaving=(*state.leaving, later))
    return state._replace(pool=kv_cache.free(config, state.pool, sequence, state.holders))


def complete(
    config: VllmConfig,
    state: State,
    flight: Flight,
    computing: tuple[Sequence, ...],
    free_late: Free = kv_cache.free,
) -> tuple[State, Flight, dict[str, str]]:
    """Return the state after a decision has completed, before its tokens are emitted. Also return
    the tokens that the decision yields, and the reason for each request that ends. `free_late`
    frees the blocks of requests that ended while the decision was in flight."""
    state = finish_write(config, state, free_late)
    if config.loads_in_step:
        return fall_back(config, state, flight, computing)
    return state, flight, {}


def report(config: VllmConfig, state: State) -> tuple[State, dict[str, str]]:
    """Return the state after the worker has reported how far loads and sends are. Also return the
    reason for each request that ends."""
    state, failed = fail(config, state)
    return count_down(config, state), failed


def finish_write(config: VllmConfig, state: State, free_late: Free = kv_cache.free) -> State:
    """Return the state after a decision has completed and no longer writes to any blocks. Blocks
    that are freed only now are freed in the usual order (V1-R90)."""
    if not state.leaving:
        return state
    done = [sequence for sequence in state.leaving if sequence.written_by == 1]
    later = [
        sequence._replace(written_by=max(sequence.written_by - 1, 0)) for sequence in state.leaving
    ]
    return _without(
        config,
        state._replace(leaving=tuple(later)),
        [sequence.id for sequence in done],
        free_late,
    )


def fail(config: VllmConfig, state: State) -> tuple[State, dict[str, str]]:
    """Remove the requests that end because their load fails now. Return the new state, and the
    reason for each removed request (V1-R28)."""
    if not config.ends_on_failed_loads:
        return state, {}
    failed = [
        sequence
        for sequence in state.parked
        if sequence.loading == 0 and sequence.arrives < sequence.computed
    ]
    for sequence in failed:
        state = state._replace(parked=without(state.parked, sequence.id))
        state = free(config, state, sequence._replace(loading=None))
    return state, {sequence.id: "error" for sequence in failed}


def count_down(config: VllmConfig, state: State) -> State:
    if not state.parked and not state.leaving:
        return state
    over = [sequence for sequence in state.leaving if sequence.loading == 0]
    writing = [sequence.id for sequence in over if is_written(state.in_flight, sequence)]
    state = _without(config, state, [s.id for s in over if s.id not in writing])
    decisions = len(state.in_flight)
    return state._replace(
        parked=tuple([_count_down(sequence) for sequence in state.parked]),
        leaving=tuple(
            [
                sequence._replace(loading=None, written_by=decisions)
                if sequence.id in writing
                else _count_down(sequence)
                for sequence in state.leaving
            ]
        ),
    )


def _without(
    config: VllmConfig, state: State, ids: list[str], free_blocks: Free = kv_cache.free
) -> State:
    for sequence in state.leaving:
        if sequence.id in ids:
            state = state._replace(leaving=without(state.leaving, sequence.id))
            state = state._replace(pool=free_blocks(config, state.pool, sequence, state.holders))
    return state


def _count_down(sequence: Sequence) -> Sequence:
    if sequence.loading is None:
        return sequence
    if sequence.loading:
        return sequence._replace(loading=sequence.loading - 1)
    return sequence._replace(loading=None, computed=sequence.arrives)
