"""The truth about blocks: what is free, who holds what, and what can be found by its content.

Source: revision `head` for the order of free blocks and for the index, in which a content has one
block, the one filled last; the page leaves both open. Counts are in blocks.
"""

from ..pool import Content, Pool, blocks_for, fits, give_back, take, touch, unheld
from ..prefix import cached_blocks, prefix
from .config import LlmServingSimConfig
from .state import Sequence


def prefix_hit(config: LlmServingSimConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
    """The cached blocks at the start of what a request has to compute, by number; never its last
    token, whose computation gives the next one (LSS-R33)."""
    if not config.enable_prefix_caching:
        return ()
    return cached_blocks(pool, one.known, one.num_tokens, config.block_size)


def grow(
    config: LlmServingSimConfig, pool: Pool, one: Sequence, tokens: int
) -> tuple[Sequence, Pool] | None:
    """A running request with room for `tokens` more, or None where blocks are missing."""
    missing = blocks_for(one.computed + tokens, config.block_size) - len(one.blocks)
    if not fits(pool, missing):
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
    start = len(hit) * config.block_size
    # Cached blocks that no request holds are free now, and will not be: they count as needed.
    missing = blocks_for(longest, config.block_size) - len(hit) + unheld(pool, hit)
    if not fits(pool, missing + promised):
        return None
    admitted = one._replace(computed=start, prefix_hit=start, blocks=hit, published=len(hit))
    return hold(config, touch(pool, hit), admitted, tokens)


def promised(config: LlmServingSimConfig, running: tuple[Sequence, ...]) -> int:
    """Blocks that requests that run will still take until their last token."""
    whole = [one.prompt + one.max_tokens - 1 for one in running]
    held = [len(one.blocks) for one in running]
    return sum(blocks_for(tokens, config.block_size) for tokens in whole) - sum(held)


def hold(
    config: LlmServingSimConfig, pool: Pool, one: Sequence, tokens: int
) -> tuple[Sequence, Pool]:
    """The request with blocks for `tokens` more; those that this step fills can be found."""
    covered = one.computed + tokens
    missing = blocks_for(covered, config.block_size) - len(one.blocks)
    new, pool = take(pool, missing)
    blocks = one.blocks + new
    full = covered // config.block_size
    if not config.enable_prefix_caching or full <= one.published:
        return one._replace(blocks=blocks), pool
    cached = dict(pool.cached)
    for number in range(one.published, full):
        cached[prefix(one.known, (number + 1) * config.block_size)] = (blocks[number],)
    return one._replace(blocks=blocks, published=full), pool._replace(cached=cached)


def free(
    config: LlmServingSimConfig, pool: Pool, one: Sequence, others: tuple[Sequence, ...]
) -> Pool:
    """The pool without what `one` holds: its last block goes first, shared ones stay."""
    held = {block for other in others if other.id != one.id for block in other.blocks}
    freed: list[tuple[int, Content | None]] = []
    for number, block in reversed(list(enumerate(one.blocks))):
        if block not in held:
            name = prefix(one.known, (number + 1) * config.block_size)
            freed.append((block, name if number < one.published else None))
    return give_back(pool, freed, nameless_first=False)
