"""The blocks of the KV cache: which are free, which are held by a request, and which can be found
by their content.

Source: the code of revision `head`, for two things that the documentation page leaves open: the
order of free blocks, and which of several blocks with the same content is found (the one filled
last). Counts are in blocks.
"""

from .. import allocator
from ..pool import Pool, blocks_for, cached_blocks, fits, give_back, unheld
from .config import LlmServingSimConfig
from .state import Sequence


def prefix_hit(config: LlmServingSimConfig, pool: Pool, sequence: Sequence) -> tuple[int, ...]:
    """Return the numbers of the cached blocks with which the sequence begins (LSS-R02). These
    blocks contain the sequence's own tokens (ALL-R11), but never its last token, because computing
    that token yields the next one (LSS-R33). Without a prefix cache there is no hit (LSS-R03)."""
    if not config.enable_prefix_caching:
        return ()
    return cached_blocks(pool, sequence.known, sequence.num_tokens, config.block_size)


def grow(
    config: LlmServingSimConfig, pool: Pool, sequence: Sequence, tokens: int
) -> tuple[Sequence, Pool] | None:
    """Return a running sequence with room for `tokens` more tokens, and the pool. Return None if
    too few blocks are free; this is not an error (ALL-R01)."""
    missing = allocator.missing_blocks(sequence, sequence.computed + tokens, config.block_size)
    if missing > 0 and not fits(pool, missing):
        return None
    return hold(config, pool, sequence, tokens)


def admit(
    config: LlmServingSimConfig,
    pool: Pool,
    sequence: Sequence,
    hit: tuple[int, ...],
    tokens: int,
    longest: int,
    promised: int = 0,
) -> tuple[Sequence, Pool] | None:
    """Return a waiting sequence with the blocks of its `hit` and room for `tokens` more tokens.
    Return None if the free blocks, less those `promised` to others, are too few for `longest`
    tokens, the sequence's maximum length."""
    # The sequence takes those cached blocks that no request holds out of the free blocks.
    missing = blocks_for(longest, config.block_size) - len(hit) + unheld(pool, hit)
    if not fits(pool, missing + promised):
        return None
    sequence, pool = allocator.start(pool, sequence, hit, config.block_size)
    return hold(config, pool, sequence, tokens)


def promised(config: LlmServingSimConfig, running: tuple[Sequence, ...]) -> int:
    """Return how many more blocks running requests will take before their last token."""
    whole = [sequence.prompt + sequence.max_tokens - 1 for sequence in running]
    held = [len(sequence.blocks) for sequence in running]
    return sum(blocks_for(tokens, config.block_size) for tokens in whole) - sum(held)


def hold(
    config: LlmServingSimConfig, pool: Pool, sequence: Sequence, tokens: int
) -> tuple[Sequence, Pool]:
    """Return the sequence with blocks for `tokens` more tokens. Other requests can immediately find
    the blocks that this step fills, because these blocks are computed before any request reads them
    (ALL-R08)."""
    covered = sequence.computed + tokens
    sequence, pool = allocator.hold(pool, sequence, covered, config.block_size)
    if not config.enable_prefix_caching:
        return sequence, pool
    return allocator.publish_full(pool, sequence, covered, config.block_size, newest_only=True)


def free(
    config: LlmServingSimConfig, pool: Pool, sequence: Sequence, others: tuple[Sequence, ...]
) -> Pool:
    """Return the pool after `sequence` has given back its blocks, the last one first (ALL-R09).

    Blocks that `others` hold stay in use. The content of a free block can be found until the block
    is handed out (LSS-R35).
    """
    held = {block for other in others if other.id != sequence.id for block in other.blocks}
    return give_back(pool, allocator.freed(sequence, held, config.block_size), nameless_first=False)
