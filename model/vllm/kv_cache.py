"""The blocks of the KV cache: which are free, which are held by a request, and which can be found
by their content.

Source: chunked-prefill chapter, "Admission control"; cheat-sheet, "The Phase 02-03 seam". The
scheduler calls this module to find room for tokens. Counts are in blocks.
"""

from .. import allocator
from ..pool import Content, Pool, blocks_for, cached_blocks, fits, forget, give_back, unheld
from . import group_pools, kv_groups, partial_hits
from .config import VllmConfig
from .state import Sequence


def prefix_hit(config: VllmConfig, pool: Pool, sequence: Sequence) -> tuple[int, ...]:
    """Return the numbers of the cached blocks with which a request begins.

    These blocks contain the request's own tokens (ALL-R11), but never its last token, because
    computing that token yields the next one (V1CP-R28). Blocks of a running request can be hit as
    well (V1-R08). A block is hit only if all tokens up to its end are equal (V1-R12).

    With a drafter, the last block is computed again, unless the name of a block includes the next
    token: the drafter's keys and values of the last token in a block depend on the token after it
    (V1-R61).
    """
    if not config.enable_prefix_caching:
        return ()
    if config.more_groups:
        return kv_groups.whole_hit(config, pool, sequence)
    beyond = sequence.named_beyond
    hit = cached_blocks(pool, sequence.known, sequence.num_tokens, config.block_size, beyond)
    return hit[:-1] if config.lookahead and not beyond else hit


def grow(
    config: VllmConfig, pool: Pool, sequence: Sequence, tokens: int
) -> tuple[Sequence, Pool] | None:
    """Return a running request with room for `tokens` more tokens, or None if too few blocks are
    free (V1-R15, ALL-R01)."""
    covered = slots(config, sequence.computed + tokens)
    missing = allocator.missing_blocks(sequence, covered, config.block_size)
    if config.has_own_pools:
        if not group_pools.have_room_to_grow(config, pool, sequence, tokens):
            return None
    elif config.more_groups:
        computed = sequence.computed + tokens
        missing = max(missing, 0) + kv_groups.missing_to_grow(config, sequence, computed)
    if missing > 0 and not fits(pool, missing):
        return None
    return hold(config, pool, sequence, tokens)


def admit(
    config: VllmConfig,
    pool: Pool,
    sequence: Sequence,
    hit: tuple[int, ...],
    tokens: int,
    someone_runs: bool,
) -> tuple[Sequence, Pool] | None:
    """Return a waiting request with the blocks of its `hit` and room for `tokens` more tokens, or
    None if too few blocks are free.

    While another request runs, the watermark must stay free (V1CP-R19). If no other request runs,
    the watermark does not apply, since no request would ever make room (ALL-R10). With
    `reserve_full_isl`, there must be room for all known tokens of the request, not only for this
    chunk (V1CP-R22).
    """
    reserve = config.watermark_blocks if someone_runs else 0
    lacks = missing(config, pool, sequence, hit, tokens)
    if not fits(pool, lacks + reserve):
        return None
    if config.has_own_pools and not group_pools.have_room(config, pool, sequence, tokens):
        return None
    sequence, pool = allocator.start(pool, sequence, hit, config.block_size)
    if config.more_groups:
        sequence, pool = kv_groups.start(config, pool, sequence)
    if not sequence.inside:
        return hold(config, pool, sequence, tokens)
    sequence, pool, copied = partial_hits.start(config, pool, sequence)
    sequence, pool = hold(config, pool, sequence, tokens)
    return sequence, partial_hits.copying(config, pool, sequence, copied)


def missing(
    config: VllmConfig, pool: Pool, sequence: Sequence, hit: tuple[int, ...], tokens: int
) -> int:
    """Return how many blocks a waiting request lacks. Those blocks of its hit that no request holds
    count, because admission takes them out of the free blocks."""
    covered = slots(config, len(hit) * config.block_size + sequence.inside + tokens)
    if config.reserve_full_isl:
        covered = max(sequence.num_tokens, covered)
    lacks = blocks_for(covered, config.block_size) - len(hit) + unheld(pool, hit)
    if config.more_groups and not config.has_own_pools:
        lacks += kv_groups.missing(config, pool, sequence, len(hit), tokens)
    return lacks


def found(
    config: VllmConfig, pool: Pool, sequence: Sequence, someone_runs: bool
) -> tuple[tuple[int, ...], Sequence]:
    """Return the hit of a waiting request, and the request. A request that already has blocks has
    no hit."""
    if sequence.blocks:
        return (), sequence
    if config.hits_inside:
        return hit_inside(config, pool, sequence, someone_runs)
    return prefix_hit(config, pool, sequence), sequence


def hit_inside(
    config: VllmConfig, pool: Pool, sequence: Sequence, someone_runs: bool
) -> tuple[tuple[int, ...], Sequence]:
    """Return the hit of a request if hits may end inside a block, and the request.

    Such a hit needs more blocks, because the block is copied. If no request runs, and the pool has
    too few blocks, the request computes all its tokens itself, since no block will ever become free
    (ALL-R10).
    """
    hit, found = partial_hits.hit(config, pool, sequence)
    if someone_runs or fits(pool, missing(config, pool, found, hit, 1)):
        return hit, found
    return (), sequence


def slots(config: VllmConfig, covered: int) -> int:
    """Return the number of tokens for which a request has blocks once its first `covered` tokens
    are computed. The drafter's lookahead is added, but the number never exceeds max_model_len
    (V1CP-R30)."""
    return min(covered + config.lookahead, config.max_model_len)


def hold(config: VllmConfig, pool: Pool, sequence: Sequence, tokens: int) -> tuple[Sequence, Pool]:
    """Return the request with blocks for `tokens` more tokens (V1-R14), never block 0 (V1CP-R34).

    Blocks that this step fills with known tokens are published, because they are computed before
    any hit on them is read (ALL-R08). Drafts do not count, because they may be wrong.
    """
    covered = sequence.computed + tokens
    held, pool = allocator.hold(pool, sequence, slots(config, covered), config.block_size)
    if config.more_groups:
        held, pool = kv_groups.hold(config, pool, held, covered)
    if not config.enable_prefix_caching:
        return held, pool
    known = min(covered, sequence.num_tokens - sequence.named_beyond)
    if config.more_groups:
        known = kv_groups.findable(config, held, covered, config.block_size) * config.block_size
    held, pool = allocator.publish_full(pool, held, known, config.block_size)
    if config.hits_inside:
        return partial_hits.name_tails(config, pool, held, min(covered, held.num_tokens))
    return held, pool


def free(config: VllmConfig, pool: Pool, sequence: Sequence, others: tuple[Sequence, ...]) -> Pool:
    """Return the pool after `sequence` has given back its blocks, the last one first (V1CP-R33,
    V1CP-R40, ALL-R09).

    The content of the blocks can be found until they are handed out (V1CP-R36). Blocks that
    `others` hold stay in use.
    """
    pool, given_back = freed(config, pool, sequence, others)
    pool = give_back(pool, given_back, nameless_first=True)
    return kv_groups.free(config, pool, sequence, others) if sequence.tables else pool


def freed(
    config: VllmConfig, pool: Pool, sequence: Sequence, others: tuple[Sequence, ...]
) -> tuple[Pool, list[tuple[int, Content | None]]]:
    """Return the pool, and the blocks that a request gives back in the first group.

    If a request is aborted in the step that would have filled a block, the block stays unfilled and
    can no longer be hit.
    """
    held = {block for other in others if other.id != sequence.id for block in other.blocks}
    filled = sequence.computed // config.block_size
    if config.hits_inside:
        held |= partial_hits.in_copies(pool)
        pool = partial_hits.forget_uncomputed(pool, sequence)
    # After a failed load, another request may have published blocks that this request has not
    # filled.
    end = len(sequence.blocks) if config.loads_in_step else sequence.published
    for number in range(filled, end):
        content = sequence.name(number, config.block_size)
        pool = forget(pool, content, sequence.blocks[number])
    cut = sequence._replace(published=min(filled, sequence.published))
    return pool, allocator.freed(cut, held, config.block_size)
