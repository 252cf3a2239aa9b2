"""KV groups after the first: groups of layers that do not keep the same tokens as full attention.

Source: release 0.33.0, KVCacheManager.allocate_slots, HybridKVCacheCoordinator,
SlidingWindowManager, ChunkedLocalAttentionManager, MambaManager, CircularBufferManager.

All groups take their blocks from one pool. For the same tokens, a group of attention layers takes
as many blocks as full attention if its blocks have the same size. A group whose layers read only a
window gives back blocks that have left the window, and puts the null block in their places. A
circular buffer is one block, which a request holds from its admission to its end. `mamba` describes
the groups of Mamba layers. In other schedulers, each group has its own pool (`group_pools`).
"""

from ..pool import (
    Content,
    Pool,
    blocks_for,
    cached_blocks,
    forget,
    give_back,
    pool_of_group,
    prefix,
    publish,
    take,
    touch,
    unheld,
    with_pool_of_group,
)
from . import partial_hits
from .config import KvGroup, VllmConfig
from .queue import Plan
from .state import Sequence

NULL = 0  # the number of the null block, which holds no request's tokens
Table = tuple[int, ...]


def read_from(config: VllmConfig, group: KvGroup, computed: int) -> int:
    """Return the position of the first token that a group's layers read to compute the next token.

    Mamba layers read the state after the last computed token. That state is in the token's block.
    """
    if group.kind == "mamba":
        return 0 if keeps_one_block(config, group) else max(computed - 1, 0)
    if group.kind == "chunked_local" and group.window:
        return computed // group.window * group.window
    return max(computed - group.window + 1, 0) if group.window else 0


def keeps_one_block(config: VllmConfig, group: KvGroup) -> bool:
    """Return whether a request has only one block in a group, apart from those for drafts. The
    block holds a Mamba state that every step overwrites, because no prefix cache needs an old state
    (`mamba_cache_mode` none)."""
    return group.kind == "mamba" and not config.enable_prefix_caching


def leaves_gaps(config: VllmConfig, group: KvGroup) -> bool:
    """Return whether a group's table has null blocks between two states (`mamba_cache_mode`
    align)."""
    return group.kind == "mamba" and config.caches_states and not config.leaves_every_state


def places(config: VllmConfig, group: KvGroup, tokens: int) -> int:
    """Return the length of a group's table for this many tokens. A Mamba group also has a place for
    the state after each draft (V1-R52)."""
    if group.kind == "circular_buffer":
        return 1
    if keeps_one_block(config, group):
        return 1 + config.drafts
    drafts = config.drafts if group.kind == "mamba" else 0
    return blocks_for(tokens, config.size_of(group)) + drafts


def places_ahead(config: VllmConfig, group: KvGroup, covered: int) -> int:
    """Return the length of a group's table once the first `covered` tokens are computed. Attention
    layers also have places for a drafter's lookahead (V1CP-R30). No drafter has Mamba layers."""
    if group.kind != "mamba":
        covered = min(covered + config.lookahead, config.max_model_len)
    return places(config, group, covered)


def cached_places(config: VllmConfig, group: KvGroup, tokens: int) -> int:
    """Return the length of a group's table after a hit of this many tokens. In a group with
    circular buffers, there is no hit."""
    return 0 if group.kind == "circular_buffer" else tokens // config.size_of(group)


def new_blocks(config: VllmConfig, group: KvGroup, held: int, wanted: int) -> int:
    """Return how many new blocks a table needs to grow from `held` to `wanted` places. A Mamba
    group needs only the block in which the step leaves a state, and keeps the blocks of drafts."""
    if leaves_gaps(config, group):
        return int(wanted > held)
    return max(wanted - held, 0)


def first_blocks(config: VllmConfig, group: KvGroup, hits: int, wanted: int) -> int:
    """Return how many new blocks a group needs to extend its cached blocks `hits` to a table of
    `wanted` places."""
    drafts = config.drafts if leaves_gaps(config, group) else 0
    return new_blocks(config, group, hits, wanted) + drafts


def most_blocks(config: VllmConfig, group: KvGroup, tokens: int) -> int:
    """Return the largest number of blocks that a request of this many tokens holds in a group at
    once.

    A window or a chunk needs its own blocks, plus those for the tokens of all steps in flight,
    which need not begin at a block boundary. Mamba layers need the two states that a step reads and
    writes, plus one for each draft (V1-R58).
    """
    whole = places(config, group, tokens)
    if group.kind == "mamba":
        most = whole if config.leaves_every_state else min(whole, 2 + config.drafts)
        return most + config.hits_inside  # and a copy of the state that it overwrites
    if not group.window:
        return whole
    in_steps = config.depth * config.max_num_batched_tokens
    if group.kind == "chunked_local":
        at_once = min(group.window + in_steps, config.max_model_len)
        return min(whole, blocks_for(at_once, config.size_of(group)))
    at_once = min(group.window - 1 + in_steps, config.max_model_len)
    return min(whole, blocks_for(at_once, config.size_of(group)) + 1)


def most_blocks_of_all(config: VllmConfig, tokens: int) -> int:
    """Return the largest number of blocks that a request of this many tokens holds at once in all
    groups that share the first group's pool."""
    if config.has_own_pools:
        return blocks_for(tokens, config.block_size)
    further = sum(most_blocks(config, group, tokens) for group in config.more_groups)
    return blocks_for(tokens, config.block_size) + further


def name(config: VllmConfig, sequence: Sequence, number: int, place: int) -> Content:
    """Return the name under which the block at `place` of a request's table can be found in its
    group. No other group finds the block by this name (V1-R55).
    """
    end = (place + 1) * config.size_of(config.more_groups[number]) + sequence.named_beyond
    return ((f"group {number}", 0), *prefix(sequence.known, end))


def whole_hit(config: VllmConfig, pool: Pool, sequence: Sequence) -> Table:
    """Return the cached blocks of the full-attention group in the request's longest whole hit
    (V1-R53, V1-R93, V1-R96).

    A hit is whole under two conditions: it ends at a block boundary in every group (V1-R86), and
    each of the other groups has cached what it reads to compute the next token.
    """
    hit = longest_hit(config, pool, sequence)
    step = config.hit_unit // config.block_size
    for blocks in range(len(hit) // step * step, 0, -step):
        if is_cut(config, sequence) and not goes_on(config, pool, sequence, blocks):
            continue
        if all(None not in table for table in found(config, pool, sequence, blocks)):
            return hit[:blocks]
    return ()


def longest_hit(config: VllmConfig, pool: Pool, sequence: Sequence) -> Table:
    """Return the cached blocks of full attention at the start of a request (V1-R61)."""
    beyond = sequence.named_beyond
    hit = cached_blocks(pool, sequence.known, sequence.num_tokens, config.block_size, beyond)
    return hit[:-1] if is_cut(config, sequence) else hit


def is_cut(config: VllmConfig, sequence: Sequence) -> bool:
    """Return whether the last cached block is computed again. This is necessary if no later block
    shows that the token after this block is the same (V1-R61)."""
    return config.lookahead > 0 and not sequence.named_beyond


def goes_on(config: VllmConfig, pool: Pool, sequence: Sequence, blocks: int) -> bool:
    """Return whether, after a hit of this many blocks, each of the other groups of attention layers
    has also cached its next block. All these groups are checked, because releases do not know which
    of them have layers of the drafter."""
    tokens = blocks * config.block_size
    return all(
        group.kind in ("mamba", "circular_buffer")
        or (
            tokens + config.size_of(group) < sequence.num_tokens
            and name(config, sequence, number, tokens // config.size_of(group)) in pool.cached
        )
        for number, group in enumerate(config.more_groups)
    )


def found(
    config: VllmConfig, pool: Pool, sequence: Sequence, blocks: int
) -> list[tuple[int | None, ...]]:
    """Return the table of each group for a hit of this many blocks.

    A table has the null block where the group reads nothing, and None where the group reads a block
    that is not cached.
    """
    tables, tokens = [], blocks * config.block_size
    for number, group in enumerate(config.more_groups):
        size = config.size_of(group)
        last = cached_places(config, group, tokens)
        # A state inside a block is copied into the place after the hit (`partial_hits`).
        first = last if sequence.inside else read_from(config, group, tokens) // size
        names = [name(config, sequence, number, place) for place in range(first, last)]
        cached = [pool.cached.get(content, (None,))[0] for content in names]
        tables.append((NULL,) * first + tuple(cached))
    return tables


def hit_tables(config: VllmConfig, pool: Pool, sequence: Sequence, blocks: int) -> list[Table]:
    tables = found(config, pool, sequence, blocks)
    return [tuple([block or NULL for block in table]) for table in tables]


def missing(config: VllmConfig, pool: Pool, sequence: Sequence, hit: int, tokens: int) -> int:
    """Return how many more blocks a request needs, in the groups after the first, to compute
    `tokens` more tokens. `hit` is the number of blocks that its hit has in the first group.

    If there must be room for the whole request, count the blocks of all its tokens, but in each
    group at most as many as the request can hold there at once (V1-R54).
    """
    cached = sum(unheld(pool, table) for table in hit_tables(config, pool, sequence, hit))
    found = hit * config.block_size + sequence.inside
    if sequence.inside:
        copied = partial_hits.copied_blocks(config, pool, sequence)
        cached += unheld(pool, copied)
    held = [cached_places(config, group, found) for group in config.more_groups]
    covered = found + tokens
    ahead = min(covered + config.lookahead, config.max_model_len)
    step = blocks_for(ahead, config.block_size) - hit
    all_steps = step + sum(
        first_blocks(config, group, hits, places_ahead(config, group, covered))
        for group, hits in zip(config.more_groups, held, strict=True)
    )
    if not config.reserve_full_isl:
        return all_steps - step + cached
    first = blocks_for(sequence.num_tokens, config.block_size) - hit
    whole = [
        first_blocks(config, group, hits, reserved(config, group, sequence.num_tokens))
        for group, hits in zip(config.more_groups, held, strict=True)
    ]
    all_whole = first + sum(whole)
    if sequence.inside and blocks_for(sequence.num_tokens, config.block_size) > hit + 1:
        all_whole += sum(group.kind == "mamba" for group in config.more_groups)
    return max(all_steps, all_whole) - max(step, first) + cached


def reserved(config: VllmConfig, group: KvGroup, tokens: int) -> int:
    """Return how long admission expects the block table of a group to be for a request of `tokens`
    tokens."""
    most = places if group.kind == "mamba" else most_blocks
    return most(config, group, tokens)


def missing_to_grow(config: VllmConfig, sequence: Sequence, covered: int) -> int:
    """Return how many more blocks a running request needs, in the groups after the first, for its
    first `covered` tokens."""
    missing = sum(
        new_blocks(config, group, len(table), places_ahead(config, group, covered))
        for group, table in zip(config.more_groups, sequence.tables, strict=True)
    )
    return missing + len(sequence.tails) if sequence.tails else missing


def start(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[Sequence, Pool]:
    """Return the request and the pool after the request has taken the blocks of its hit in each
    group."""
    tables = hit_tables(config, pool, sequence, len(sequence.blocks))
    junction = junction_of(config, pool, sequence, len(sequence.blocks))
    pool = touch(pool, [block for table in tables for block in table])
    full = tuple([len(table) for table in tables])
    return sequence._replace(tables=tuple(tables), full=full, junction=junction), pool


def junction_of(config: VllmConfig, pool: Pool, sequence: Sequence, hit: int) -> int:
    """Return how many tokens full attention has cached, rounded down to a number that is whole
    blocks in every group. Return 0 if the hit, of `hit` blocks, covers as many tokens."""
    if config.hits_inside:
        _, most = partial_hits.longest(config, pool, sequence)
        return most if most > hit * config.block_size + sequence.inside else 0
    longest = longest_hit(config, pool, sequence)
    tokens = whole_units(config, len(longest) * config.block_size)
    return tokens if tokens > hit * config.block_size else 0


def whole_units(config: VllmConfig, tokens: int) -> int:
    """Return how many of the first `tokens` tokens a prefix hit may cover."""
    return tokens // config.hit_unit * config.hit_unit


def is_retained(config: VllmConfig, sequence: Sequence, group: KvGroup, place: int) -> bool:
    """Return whether later requests can find the full block at `place`.

    They can find a block of a window only if a hit can end so that the window contains the block.
    If only a few blocks of windows are retained (`retains_little`), only three kinds of windows can
    be found: the window before the last token of the prompt, the window before the end of the hit
    in full attention, and the windows before multiples of the interval, unless the interval is 0.
    Of the Mamba states, only those at the ends of these windows can be found.
    """
    size = config.size_of(group)
    unit = config.prefix_cache_retention_interval or config.hit_unit
    ends = [sequence.prompt - 1, sequence.junction]
    if group.kind not in ("sliding_window", "mamba"):
        return True
    if not config.retains_little:
        if group.kind == "mamba":
            return True
        ends.clear()
    if config.prefix_cache_retention_interval != 0:
        begun = place * size // unit * unit
        ends += [begun + unit, begun]
    beyond = int(is_cut(config, sequence) and group.kind != "mamba")
    return any(
        read_from(config, group, end) // size <= place < end // size + beyond
        for end in (whole_units(config, end) for end in ends)
        if end
    )


def hold(config: VllmConfig, pool: Pool, sequence: Sequence, covered: int) -> tuple[Sequence, Pool]:
    """Return the request with places in each group for its first `covered` tokens (V1-R52), and the
    pool.

    The blocks that these tokens fill can be found from now on.
    """
    tables = []
    for number, (group, table) in enumerate(zip(config.more_groups, sequence.tables, strict=True)):
        if sequence.tails and number in sequence.tails:
            pool = partial_hits.keep_tail(config, pool, sequence, number)
        wanted = max(places_ahead(config, group, covered), len(table))
        if wanted > len(table) and config.drafts and leaves_gaps(config, group):
            table = without_old_drafts(config, sequence, table, wanted)
            new, pool = take(pool, wanted - len(table))
        else:
            lacks = new_blocks(config, group, len(table), wanted)
            new, own = take(pool_of_group(pool, number), lacks)
            pool = with_pool_of_group(pool, number, own)
        tables.append(table + (NULL,) * (wanted - len(table) - len(new)) + new)
    sequence = sequence._replace(tables=tuple(tables), tails=())
    if config.depth > 1:
        sequence = sequence._replace(begun=(*sequence.begun, sequence.computed))
    if config.enable_prefix_caching:
        sequence, pool = publish_full(config, pool, sequence, covered)
    return sequence, pool


def without_old_drafts(config: VllmConfig, sequence: Sequence, table: Table, wanted: int) -> Table:
    """Return a Mamba group's table, extended so that the step leaves its state in the next place.
    The blocks of earlier drafts are moved to the end of the table."""
    state, size = wanted - config.drafts - 1, config.block_size
    begins = len(table) <= sequence.computed // size  # the table has only the hit
    first = len(table) if begins else len(table) - config.drafts
    moved = table[first : max(state, first)]
    table = table[:first] + (NULL,) * len(moved) + table[first + len(moved) :]
    return table + (NULL,) * (state - len(table)) + moved


def publish_full(
    config: VllmConfig, pool: Pool, sequence: Sequence, covered: int
) -> tuple[Sequence, Pool]:
    """Publish the blocks that the request's first `covered` tokens fill, and return the request and
    the pool. Drafts do not count, because they may be wrong."""
    full, published = [], []
    for number, (group, table) in enumerate(zip(config.more_groups, sequence.tables, strict=True)):
        end = findable(config, sequence, covered, config.size_of(group))
        end = 0 if group.kind == "circular_buffer" else max(end, sequence.full[number])
        published += [
            (table[place], name(config, sequence, number, place))
            for place in range(sequence.full[number], end)
            if table[place] != NULL and is_retained(config, sequence, group, place)
        ]
        full.append(end)
    pool = publish(pool, published)
    if config.hits_inside:
        pool = partial_hits.with_new(pool, tuple([content for _, content in published]))
    return sequence._replace(full=tuple(full)), pool


def findable(config: VllmConfig, sequence: Sequence, covered: int, size: int) -> int:
    """Return how many blocks of `size` tokens at the start of a request can be found once its first
    `covered` tokens are computed. These are the blocks of whole units. One more block can be found
    if the last block of a hit is computed again (`is_cut`, V1-R61)."""
    known = min(covered, sequence.num_tokens)
    whole = whole_units(config, known)
    if whole and is_cut(config, sequence):
        whole = min(known, whole + size)
    return min(whole, sequence.num_tokens - sequence.named_beyond) // size


def slide(config: VllmConfig, plan: Plan, place: int) -> tuple[Plan, Sequence]:
    """Return the plan after the running request at `place` has given back the blocks that its
    windows no longer cover. The request keeps the blocks that decisions in flight still read.

    This happens before the request takes blocks for the tokens of this step (V1-R51).
    """
    sequence, pool = without_slid_blocks(config, plan.pool, plan.running[place], plan.holders)
    running = (*plan.running[:place], sequence, *plan.running[place + 1 :])
    return plan._replace(running=running, pool=pool), sequence


def without_slid_blocks(
    config: VllmConfig, pool: Pool, sequence: Sequence, holders: tuple[Sequence, ...]
) -> tuple[Sequence, Pool]:
    """Give back the blocks that a request's windows no longer cover. Return the request and the
    pool."""
    tables: list[Table] = []
    for number, (group, table) in enumerate(zip(config.more_groups, sequence.tables, strict=True)):
        first = read_from(config, group, sequence.settled) // config.size_of(group)
        pool = give_back_places(config, pool, sequence, number, range(first), holders)
        tables.append((NULL,) * first + table[first:])
    return sequence._replace(tables=tuple(tables)), pool


def free(config: VllmConfig, pool: Pool, sequence: Sequence, holders: tuple[Sequence, ...]) -> Pool:
    """Return the pool after a request has given back its blocks in all groups after the first.

    Blocks that were not filled can no longer be found.
    """
    for number, table in enumerate(sequence.tables):
        pool = forget_unfilled(config, pool, sequence, number)
        pool = give_back_places(config, pool, sequence, number, range(len(table)), holders)
    return pool


def forget_unfilled(config: VllmConfig, pool: Pool, sequence: Sequence, number: int) -> Pool:
    filled = sequence.computed // config.size_of(config.more_groups[number])
    for place in range(filled, sequence.full[number]):
        block = sequence.tables[number][place]
        pool = forget(pool, name(config, sequence, number, place), block)
    return pool


def give_back_places(
    config: VllmConfig,
    pool: Pool,
    sequence: Sequence,
    number: int,
    places: range,
    holders: tuple[Sequence, ...],
) -> Pool:
    """Give back the blocks at these places of a table, the last one first. Return the pool."""
    freed = freed_places(config, pool, sequence, number, places, holders)
    own = give_back(pool_of_group(pool, number), freed, nameless_first=True)
    return with_pool_of_group(pool, number, own)


def freed_places(
    config: VllmConfig,
    pool: Pool,
    sequence: Sequence,
    number: int,
    places: range,
    holders: tuple[Sequence, ...],
) -> list[tuple[int, Content | None]]:
    """Return the blocks at these places of a table, the last one first, each with the content by
    which it can be found. Blocks that another request holds stay in use.
    """
    tables = [other.tables[number] for other in holders if other.id != sequence.id and other.tables]
    held = {NULL, *(block for table in tables for block in table)}
    if config.hits_inside:
        held |= partial_hits.in_copies(pool)
    freed = []
    for place in reversed(places):
        block, content = sequence.tables[number][place], name(config, sequence, number, place)
        if block not in held:
            found_by_it = block in pool.cached.get(content, ())
            freed.append((block, content if found_by_it else None))
    return freed
