"""The truth about blocks: what is free, what each request holds, and what can be found by its
content.

Source: revision `head` for the order of free blocks and for the index, in which a content has one
block, the one filled last; the page leaves both open. Counts are in blocks.
"""

from .. import allocator
from ..pool import Pool, blocks_for, cached_blocks, fits, give_back, unheld
from .config import LlmServingSimConfig
from .state import Sequence


def prefix_hit(config: LlmServingSimConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
    """The cached blocks at the start of what a request has to compute, by number (LSS-R02), which
    hold its own tokens (ALL-R11); never its last token, whose computation gives the next one
    (LSS-R33). Without a cache nothing is skipped (LSS-R03)."""
    if not config.enable_prefix_caching:
        return ()
    return cached_blocks(pool, one.known, one.num_tokens, config.block_size)


def grow(
    config: LlmServingSimConfig, pool: Pool, one: Sequence, tokens: int
) -> tuple[Sequence, Pool] | None:
    """A running request with room for `tokens` more, or None where blocks are missing:
    that is no error (ALL-R01)."""
    missing = allocator.missing_blocks(one, one.computed + tokens, config.block_size)
    if missing > 0 and not fits(pool, missing):
        return None
    return hold(config, pool, one, tokens)


def admit(
    config: LlmServingSimConfig,
    pool: Pool,
    one: Sequence,
    hit: tuple[int, ...],
    tokens: int,
    longest: int,
    promised: int = 0,
) -> tuple[Sequence, Pool] | None:
    """A waiting request with the blocks of its `hit` and room for `tokens` more; None unless its
    `longest` tokens fit into the free blocks of which so many are `promised` to others."""
    # Cached blocks that no request holds are free now, and will not be: they count as needed.
    missing = blocks_for(longest, config.block_size) - len(hit) + unheld(pool, hit)
    if not fits(pool, missing + promised):
        return None
    one, pool = allocator.start(pool, one, hit, config.block_size)
    return hold(config, pool, one, tokens)


def promised(config: LlmServingSimConfig, running: tuple[Sequence, ...]) -> int:
    """Blocks that requests that run will still take until their last token."""
    whole = [one.prompt + one.max_tokens - 1 for one in running]
    held = [len(one.blocks) for one in running]
    return sum(blocks_for(tokens, config.block_size) for tokens in whole) - sum(held)


def hold(
    config: LlmServingSimConfig, pool: Pool, one: Sequence, tokens: int
) -> tuple[Sequence, Pool]:
    """The request with blocks for `tokens` more; those that this step fills can be found, since
    they are computed before any hit on them is read (ALL-R08)."""
    covered = one.computed + tokens
    one, pool = allocator.hold(pool, one, covered, config.block_size)
    if not config.enable_prefix_caching:
        return one, pool
    return allocator.publish_full(pool, one, covered, config.block_size, newest_only=True)


def free(
    config: LlmServingSimConfig, pool: Pool, one: Sequence, others: tuple[Sequence, ...]
) -> Pool:
    """The pool without what `one` holds: its last block goes first, shared ones stay, and none is
    lost (ALL-R09). What they hold is found until they are handed out (LSS-R35)."""
    held = {block for other in others if other.id != one.id for block in other.blocks}
    return give_back(pool, allocator.freed(one, held, config.block_size), nameless_first=False)
