"""The block pool: blocks that requests have, blocks promised to them, and blocks that they give
back.

Sources: the scheduling page, "Prefix caching", for prefix hits; release 2.2.0 for promised blocks;
the target protocol, "Pools on Spyre", for everything else, which the page leaves open. Counts are
in blocks.
"""

from .. import allocator
from .. import pool as pools
from ..errors import ReleaseEnded
from ..pool import Pool, fits, free_blocks
from .config import SpyreConfig
from .revision import Freed, Revision
from .state import Sequence, State


def prefix_hit(config: SpyreConfig, state: State, newcomer: Sequence) -> tuple[int, ...]:
    """Return the numbers of the cached blocks at the start of a prompt.

    They include blocks with tokens that other requests generated (SPY-R60), but never the block of
    the last token: the chunk of that token is always computed (SPY-R55), and the block is stored
    again (SPY-R57).
    """
    if not config.prefix_caching:
        return ()
    return pools.cached_blocks(state.pool, newcomer.content, newcomer.prompt, config.block_size)


def in_use(state: State) -> set[int]:
    return {block for request in state.admitted for block in request.blocks}


def blocks_at_end(config: SpyreConfig, request: Sequence) -> int:
    """Return how many blocks a request has at its end. Its last token needs no block, because it is
    never computed."""
    return -(-(request.prompt + request.max_tokens - 1) // config.block_size)


def reserved(config: SpyreConfig, revision: Revision, state: State) -> int:
    """Return the number of blocks that are promised but not yet given to a request (SPY-P02)."""
    at_end, promised = revision.blocks_at_end, state.lost_blocks
    for request in state.admitted:
        promised += at_end(config, request) - len(request.blocks)
    return promised


def fits_pool(config: SpyreConfig, revision: Revision, state: State, newcomer: Sequence) -> bool:
    """Return whether the blocks that are free and not promised are enough for all tokens that the
    newcomer may have (SPY-R50). If they are, the newcomer can finish once it has started (ALL-R06).

    A hit on a block that another request has takes no free block, but a hit on a free block does.
    """
    free = free_blocks(state.pool)
    if free is None:
        return True
    held = in_use(state)
    shared = sum(block in held for block in prefix_hit(config, state, newcomer))
    needed = revision.blocks_at_end(config, newcomer) - shared
    return needed <= free - reserved(config, revision, state)


def lost_blocks(config: SpyreConfig, revision: Revision, request: Sequence, inside: bool) -> int:
    """Return how many blocks stay promised to a request after its abort: none (SPY-P02)."""
    return 0


def admit(config: SpyreConfig, state: State, newcomer: Sequence) -> tuple[Sequence, Pool]:
    """Return the newcomer with the cached blocks of its prompt, which are now in use, and the
    remaining pool. No step computes the chunks that these blocks fill (SPY-R54), and no step stores
    the blocks again (SPY-R57)."""
    hit = prefix_hit(config, state, newcomer)
    if not hit:
        return newcomer, state.pool
    return allocator.start(state.pool, newcomer, hit, config.block_size)


def hold(config: SpyreConfig, request: Sequence, covered: int, pool: Pool) -> tuple[Sequence, Pool]:
    """Return the request with blocks for its first `covered` tokens (SPY-R02). Full blocks are
    published. The caller guarantees that they are computed (ALL-R08, ALL-R11).

    Raise ReleaseEnded if no block is free. This cannot happen if blocks are promised in advance. If
    they are not, vLLM's scheduler preempts a request, and the release fails with an AssertionError
    (ALL-R01).
    """
    if not fits(pool, allocator.missing_blocks(request, covered, config.block_size)):
        raise ReleaseEnded(f"no block is free for token {covered} of {request.id}")
    request, pool = allocator.hold(pool, request, covered, config.block_size)
    if not config.prefix_caching:
        return request, pool
    return allocator.publish_full(pool, request, covered, config.block_size)


def release(config: SpyreConfig, revision: Revision, state: State, request: Sequence) -> Pool:
    """Return the pool after `request` has left. Its blocks are freed from the last to the first,
    except those that others share (ALL-R09). The content of free blocks can be found until they are
    handed out (SPY-R63)."""
    others = in_use(state) if config.prefix_caching else set()
    return revision.give_back(state.pool, allocator.freed(request, others, config.block_size))


def give_back(pool: Pool, freed: Freed) -> Pool:
    """Return the pool after the `freed` blocks have been given back. Those that no request can hit
    are handed out before all others."""
    return pools.give_back(pool, freed, nameless_first=True)
