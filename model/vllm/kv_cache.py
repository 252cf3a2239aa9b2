"""The truth about blocks: what is free, what each request holds, and what can be found by its
content.

Source: chunked-prefill chapter, "Admission control"; cheat-sheet, "The Phase 02-03 seam". The
scheduler asks for room and is given it or not; counts are in blocks.
"""

from .. import allocator
from ..pool import Pool, blocks_for, cached_blocks, fits, forget, give_back, prefix, unheld
from .config import VllmConfig
from .state import Sequence


def prefix_hit(config: VllmConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
    """The cached blocks at the start of what a request has to compute, by number, which hold its
    own tokens (ALL-R11); never its last token, whose computation gives the next one (V1CP-R28).
    Blocks of a running request are found, too (V1-R08), and only by all tokens up to their end
    (V1-R12)."""
    if not config.enable_prefix_caching:
        return ()
    return cached_blocks(pool, one.known, one.num_tokens, config.block_size)


def grow(
    config: VllmConfig, pool: Pool, one: Sequence, tokens: int
) -> tuple[Sequence, Pool] | None:
    """A running request with room for `tokens` more, or None: that is no error (V1-R15,
    ALL-R01)."""
    covered = slots(config, one.computed + tokens)
    missing = allocator.missing_blocks(one, covered, config.block_size)
    if missing > 0 and not fits(pool, missing):
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

    The reserve of the watermark is refused to it as soon as a request runs (V1CP-R19), but not to
    the first, for which no request would make room (ALL-R10); and with `reserve_full_isl` all that
    it knows must fit, not only this chunk (V1CP-R22).
    """
    reserve = config.watermark_blocks if someone_runs else 0
    start = len(hit) * config.block_size
    covered = slots(config, start + tokens)
    if config.reserve_full_isl:
        covered = max(one.num_tokens, covered)
    # Cached blocks that no request holds are free now, and will not be: they count as needed.
    missing = blocks_for(covered, config.block_size) - len(hit) + unheld(pool, hit)
    if not fits(pool, missing + reserve):
        return None
    one, pool = allocator.start(pool, one, hit, config.block_size)
    return hold(config, pool, one, tokens)


def slots(config: VllmConfig, covered: int) -> int:
    """Tokens for which a request holds blocks whose first `covered` tokens are computed: with the
    lookahead of its drafter, none beyond max_model_len (V1CP-R30)."""
    return min(covered + config.lookahead, config.max_model_len)


def hold(config: VllmConfig, pool: Pool, one: Sequence, tokens: int) -> tuple[Sequence, Pool]:
    """The request with blocks for `tokens` more (V1-R14), never block 0 (V1CP-R34); those that this
    step fills with known tokens are published, since they are computed before any hit on them is
    read (ALL-R08): a draft may be wrong."""
    covered = one.computed + tokens
    held, pool = allocator.hold(pool, one, slots(config, covered), config.block_size)
    if not config.enable_prefix_caching:
        return held, pool
    known = min(covered, one.num_tokens)
    return allocator.publish_full(pool, held, known, config.block_size)


def free(config: VllmConfig, pool: Pool, one: Sequence, others: tuple[Sequence, ...]) -> Pool:
    """The pool without what `one` holds: its last block goes first (V1CP-R33), shared ones stay,
    and none is lost (ALL-R09). What they hold is found until they are handed out (V1CP-R36).

    A request that is aborted in the step that was to fill a block leaves it unfilled: the block is
    found no more.
    """
    held = {block for other in others if other.id != one.id for block in other.blocks}
    filled = one.computed // config.block_size
    for number in range(filled, one.published):
        content = prefix(one.known, (number + 1) * config.block_size)
        pool = forget(pool, content, one.blocks[number])
    found = one._replace(published=min(filled, one.published))
    return give_back(pool, allocator.freed(found, held, config.block_size), nameless_first=True)
