"""Loads into several KV groups: once a load has finished, each group holds what its layers read.

Source: release 0.33.0, SingleTypeKVCacheManager.add_local_computed_blocks and
allocate_external_computed_blocks, Scheduler._request_remaining_blocks, _handle_failed_recving.
"""

from collections.abc import Iterable

from .. import allocator
from ..pool import Content, Pool, blocks_for, give_back, take, touch, unheld
from . import kv_cache, kv_groups
from .config import VllmConfig
from .kv_groups import NULL, Table
from .state import Sequence


def begin(
    config: VllmConfig, pool: Pool, sequence: Sequence, covered: int
) -> tuple[Sequence, Pool]:
    """Return the request and the pool after the request has taken the blocks of its hit and, in
    each group, blocks for a load up to token `covered`. Take the cached blocks first, so that none
    of them is handed out."""
    hit = len(sequence.blocks)
    found = _found(config, pool, sequence, hit, covered)
    junction = kv_groups.junction_of(config, pool, sequence, hit)
    pool = touch(pool, [block for table in found for block in table])
    sequence, pool = allocator.hold(pool, sequence, covered, config.block_size)
    full, tables = tuple([len(table) for table in found]), []
    for group, table in zip(config.more_groups, found, strict=True):
        new, pool = take(pool, kv_groups.places(config, group, covered) - len(table))
        tables.append(table + new)
    return sequence._replace(tables=tuple(tables), full=full, junction=junction), pool


def missing(
    config: VllmConfig, pool: Pool, sequence: Sequence, hit: int, covered: int
) -> tuple[int, int]:
    """Return two numbers of blocks that a request still needs in the groups after the first: for
    the whole request, as admission reserves them, and for a load up to `covered` tokens. `hit` is
    the number of blocks in its hit."""
    if not config.more_groups:
        return 0, 0
    whole = load = 0
    found = _found(config, pool, sequence, hit, covered)
    for group, table in zip(config.more_groups, found, strict=True):
        cached = unheld(pool, table)
        reserved = kv_groups.reserved(config, group, sequence.num_tokens)
        whole += max(reserved - len(table), 0) + cached
        load += max(kv_groups.places(config, group, covered) - len(table), 0) + cached
    return whole, load


def _found(
    config: VllmConfig, pool: Pool, sequence: Sequence, hit: int, covered: int
) -> list[Table]:
    """Return the table of each group after a hit of `hit` blocks. A table contains only the blocks
    that are read after a load up to `covered` tokens, when at least the last token of the request
    is still to be computed (V1-R52)."""
    begins, tables = min(covered, sequence.num_tokens - 1), []
    hits = kv_groups.hit_tables(config, pool, sequence, hit)
    for group, table in zip(config.more_groups, hits, strict=True):
        first = kv_groups.read_from(config, group, begins) // config.size_of(group)
        tables.append((NULL,) * first + table[first:])
    return tables


def promised(config: VllmConfig, sequence: Sequence, tokens: int) -> int:
    """Return how many free blocks, in the groups after the first, a load of another request must
    leave to this one: as many as admission reserves for `tokens` tokens, minus the places that the
    request already has (V1-R21)."""
    tables: Iterable[Table] = sequence.tables or [()] * len(config.more_groups)
    return sum(
        max(kv_groups.reserved(config, group, tokens) - len(table), 0)
        for group, table in zip(config.more_groups, tables, strict=True)
    )


def missing_to_go_on(config: VllmConfig, sequence: Sequence, in_first: int, tokens: int) -> int:
    """Return how many more blocks, in all groups together, a loaded request needs to compute
    `tokens` more tokens. `in_first` is the number for the first group. If there must be room for
    the whole request, count at least the blocks that are reserved for it."""
    covered = sequence.computed + tokens
    step = kv_groups.missing_to_grow(config, sequence, covered)
    if not config.reserve_full_isl:
        return in_first + step
    size = config.block_size
    ahead = kv_cache.slots(config, covered)
    first = max(blocks_for(ahead, size) - len(sequence.blocks), 0)
    whole = max(blocks_for(sequence.num_tokens, size) - len(sequence.blocks), 0)
    whole += promised(config, sequence, sequence.num_tokens)
    return max(first + step, whole)


def blocks_of_step(config: VllmConfig, tokens: int) -> int:
    """Return how many blocks a step with this many tokens takes in the groups after the first."""
    return sum(blocks_for(tokens, config.size_of(group)) for group in config.more_groups)


def publish(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[Sequence, Pool]:
    """Return the request and the pool, in which the loaded blocks of all groups can be found."""
    size, computed = config.block_size, sequence.computed
    sequence, pool = kv_groups.publish_full(config, pool, sequence, computed)
    known = kv_groups.findable(config, sequence, computed, size) * size
    return allocator.publish_full(pool, sequence, known, size)


def free_together(
    config: VllmConfig, pool: Pool, sequence: Sequence, holders: tuple[Sequence, ...]
) -> Pool:
    """Return the pool after a request has given back the blocks to which a decision in flight has
    written. They are freed together, those of the last group first."""
    freed: list[tuple[int, Content | None]] = []
    for number in reversed(range(len(sequence.tables))):
        pool = kv_groups.forget_unfilled(config, pool, sequence, number)
        every_place = range(len(sequence.tables[number]))
        freed += kv_groups.freed_places(config, pool, sequence, number, every_place, holders)
    pool, in_first = kv_cache.freed(config, pool, sequence, holders)
    return give_back(pool, freed + in_first, nameless_first=True)
