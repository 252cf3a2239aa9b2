"""The truth about blocks: what is free, who holds what, and what can be found by its content.

Source: chunked-prefill chapter, "Admission control"; cheat-sheet, "The Phase 02-03 seam". The
scheduler asks for room and is given it or not; counts are in blocks.
"""

from ..pool import Content, Pool, blocks_for, fits, forget, give_back, publish, take, touch, unheld
from ..prefix import cached_blocks, prefix
from .config import VllmConfig
from .state import Sequence


def prefix_hit(config: VllmConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
    """The cached blocks at the start of what a request has to compute, by number; never its last
    token, whose computation gives the next one (V1CP-R28)."""
    if not config.enable_prefix_caching:
        return ()
    return cached_blocks(pool, one.known, one.num_tokens, config.block_size)


def grow(
    config: VllmConfig, pool: Pool, one: Sequence, tokens: int
) -> tuple[Sequence, Pool] | None:
    """A running request with room for `tokens` more, or None: that is no error (V1-R15)."""
    missing = blocks_for(one.computed + tokens, config.block_size) - len(one.blocks)
    if not fits(pool, missing):
        return None
    return hold(config, pool, one, tokens)


def admit(
    config: VllmConfig,
    pool: Pool,
    one: Sequence,
    hit: tuple[int, ...],
    tokens: int,
    someone_runs: bool,
) -> tuple[Sequence, Pool] | None:
    """A waiting request with the blocks of its `hit` and room for `tokens` more, or None.

    The reserve of the watermark is refused to it as soon as a request runs (V1CP-R19), and with
    `reserve_full_isl` all that it knows must fit, not only this chunk (V1CP-R22).
    """
    reserve = config.watermark_blocks if someone_runs else 0
    start = len(hit) * config.block_size
    covered = one.num_tokens if config.reserve_full_isl else start + tokens
    # Cached blocks that no request holds are free now, and will not be: they count as needed.
    missing = blocks_for(covered, config.block_size) - len(hit) + unheld(pool, hit)
    if not fits(pool, missing + reserve):
        return None
    admitted = one._replace(computed=start, prefix_hit=start, blocks=hit, published=len(hit))
    return hold(config, touch(pool, hit), admitted, tokens)


def hold(config: VllmConfig, pool: Pool, one: Sequence, tokens: int) -> tuple[Sequence, Pool]:
    """The request with blocks for `tokens` more; those that this step fills are published."""
    covered = one.computed + tokens
    missing = blocks_for(covered, config.block_size) - len(one.blocks)
    new, pool = take(pool, missing)
    blocks = one.blocks + new
    full = covered // config.block_size
    if not config.enable_prefix_caching or full <= one.published:
        return one._replace(blocks=blocks), pool
    filled = [
        (blocks[number], prefix(one.known, (number + 1) * config.block_size))
        for number in range(one.published, full)
    ]
    return one._replace(blocks=blocks, published=full), publish(pool, filled)


def free(config: VllmConfig, pool: Pool, one: Sequence, others: tuple[Sequence, ...]) -> Pool:
    """The pool without what `one` holds: its last block goes first, shared ones stay (V1CP-R33).

    Who gives up in the step that was to fill a block leaves it unfilled: it is found no more.
    """
    held = {block for other in others if other.id != one.id for block in other.blocks}
    filled = one.computed // config.block_size
    freed: list[tuple[int, Content | None]] = []
    for number, block in reversed(list(enumerate(one.blocks))):
        name = prefix(one.known, (number + 1) * config.block_size)
        if filled <= number < one.published:
            pool = forget(pool, name, block)
        if block not in held:
            freed.append((block, name if number < min(filled, one.published) else None))
    return give_back(pool, freed, nameless_first=True)
