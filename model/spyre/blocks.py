"""Blocks of requests: what they hold, what is promised to them, what they give back.

Source: Spyre scheduling page, "Prefix caching"; target protocol, "Pools on Spyre"; release 2.5.2
for promises. Counts are in blocks.
"""

from .. import allocator, prefix
from ..errors import ReleaseEnded
from ..pool import Pool, blocks_for, fits, free_blocks, give_back, unheld
from .config import SpyreConfig
from .revision import Revision
from .state import Sequence, State


def prefix_hit(config: SpyreConfig, state: State, newcomer: Sequence) -> tuple[int, ...]:
    """The cached blocks at the start of a prompt, by number; what others generated is found, too
    (SPY-R60), the last block never: its chunk is always computed (SPY-R55)."""
    if not config.prefix_caching:
        return ()
    return prefix.cached_blocks(state.pool, newcomer.content, newcomer.prompt, config.block_size)


def in_use(state: State) -> set[int]:
    """The numbers of the blocks that are held, shared ones once."""
    return {block for one in state.admitted for block in one.blocks}


def at_end(config: SpyreConfig, revision: Revision, one: Sequence) -> int:
    """Blocks of a request that has generated all it may. The last token is never computed."""
    tokens = one.prompt + one.max_tokens - (0 if revision.reserves_last_token else 1)
    return -(-tokens // config.block_size)


def reserved(config: SpyreConfig, revision: Revision, state: State) -> int:
    """Blocks that are promised and not held yet (SPY-P02)."""
    promised = [at_end(config, revision, one) - len(one.blocks) for one in state.admitted]
    return state.lost_blocks + sum(promised)


def fits_pool(config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence) -> bool:
    """Blocks for the newcomer's whole life are free and not promised to any request (SPY-R50).

    Cached blocks that others hold are not needed again; free ones are, they leave the pool.
    """
    free = free_blocks(state.pool)
    if free is None or not revision.reserves_blocks:
        return True
    held = in_use(state)
    shared = sum(block in held for block in prefix_hit(config, state, newcomer))
    needed = at_end(config, revision, newcomer) - shared
    return needed <= free - reserved(config, revision, state)


def fits_prompt(config: SpyreConfig, state: State, newcomer: Sequence) -> bool:
    """Blocks for the whole prompt are free: all that a release without reservation asks (2.1.2,
    by vLLM's own allocation)."""
    hit = prefix_hit(config, state, newcomer)
    needed = blocks_for(newcomer.prompt, config.block_size) - len(hit)
    return fits(state.pool, needed + unheld(state.pool, hit))


def admit(config: SpyreConfig, state: State, newcomer: Sequence) -> tuple[Sequence, Pool]:
    """The newcomer with the cached blocks of its prompt, which are in use from now on: its
    chunks take no step (SPY-R54), and no block of it is stored again (SPY-R57)."""
    hit = prefix_hit(config, state, newcomer)
    if not hit:
        return newcomer, state.pool
    return allocator.start(state.pool, newcomer, hit, config.block_size)


def hold(config: SpyreConfig, one: Sequence, covered: int, pool: Pool) -> tuple[Sequence, Pool]:
    """The request with blocks for its first `covered` tokens (SPY-R02); those that fill up are
    published.

    Raises:
        ReleaseEnded: no block is free, which cannot be where blocks are reserved. vLLM's scheduler
            then preempts a request, and an assertion ends the release.
    """
    if not fits(pool, allocator.missing_blocks(one, covered, config.block_size)):
        raise ReleaseEnded(f"no block is free for token {covered} of {one.id}")
    one, pool = allocator.hold(pool, one, covered, config.block_size)
    if not config.prefix_caching:
        return one, pool
    return allocator.publish_full(pool, one, covered, config.block_size)


def release(config: SpyreConfig, revision: Revision, state: State, one: Sequence) -> Pool:
    """The pool when `one` has left: its last block goes first, shared ones stay."""
    others = in_use(state) if config.prefix_caching else set()
    freed = allocator.freed(one, others, config.block_size)
    return give_back(state.pool, freed, revision.nameless_first)
