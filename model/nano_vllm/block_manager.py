"""The block manager keeps track of blocks: which are free, which are held by a request, and which
can be found by their content.

Source: the slide deck on nano-vLLM, chapters 5 "Memory, Blocks, and BlockManager" and 7 "Prefix
Caching". The block manager serves the scheduler and never touches the device. Free blocks are taken
from the front of a deque and come back at its end. Counts are in blocks.
"""

from .. import allocator
from ..pool import Pool, blocks_for, cached_blocks, fits, give_back, unheld
from .config import NanoConfig
from .state import Sequence


def prefix_hit(config: NanoConfig, pool: Pool, sequence: Sequence) -> tuple[int, ...]:
    """Return the longest run of cached blocks at the start of a sequence (NAN-R34). These are full
    blocks (NAN-R32) with the sequence's own tokens (ALL-R11). The last block is never among them,
    because it is always computed (NAN-R35).
    """
    return cached_blocks(pool, sequence.known, sequence.num_tokens, config.block_size)


def unshared_blocks(
    config: NanoConfig, pool: Pool, sequence: Sequence, hit: tuple[int, ...]
) -> int:
    """Return how many free blocks a sequence takes. The blocks of `hit` that are in use are not
    free, so they do not count."""
    shared = len(hit) - unheld(pool, hit)
    return blocks_for(sequence.num_tokens, config.block_size) - shared


def allocate(
    config: NanoConfig, pool: Pool, sequence: Sequence, hit: tuple[int, ...]
) -> tuple[Sequence, Pool]:
    """Return the sequence with blocks for all its tokens. The first of these blocks may be shared
    or cached (NAN-R29)."""
    sequence, pool = allocator.start(pool, sequence, hit, config.block_size)
    return allocator.hold(pool, sequence, sequence.num_tokens, config.block_size)


def can_append(config: NanoConfig, pool: Pool, sequence: Sequence) -> bool:
    """Return whether there is room for the next token of a running sequence, in its last block or
    in a free one. If not, the scheduler preempts instead of raising an error (ALL-R01)."""
    return not crosses(config, sequence) or fits(pool, 1)


def may_append(config: NanoConfig, pool: Pool, sequence: Sequence) -> tuple[Sequence, Pool]:
    if not crosses(config, sequence):
        return sequence, pool
    return allocator.hold(pool, sequence, sequence.num_tokens, config.block_size)


def crosses(config: NanoConfig, sequence: Sequence) -> bool:
    """Return whether the last token, which is not computed yet, is the first token of a block
    (NAN-R17)."""
    return sequence.num_tokens % config.block_size == 1


def hash_blocks(config: NanoConfig, pool: Pool, sequence: Sequence) -> tuple[Sequence, Pool]:
    """Publish the full, computed blocks of the sequence (ALL-R08).

    If two blocks have the same content, later hits use the one filled last.
    """
    return allocator.publish_full(
        pool, sequence, sequence.computed, config.block_size, newest_only=True
    )


def deallocate(
    pool: Pool, sequence: Sequence, others: tuple[Sequence, ...], block_size: int
) -> Pool:
    """Return the pool after `sequence` has given back its blocks, the last one first (ALL-R09).

    Blocks that `others` hold stay in use. The content of a free block can be found until the block
    is handed out (NAN-R48).
    """
    held = {block for other in others if other.id != sequence.id for block in other.blocks}
    return give_back(pool, allocator.freed(sequence, held, block_size), nameless_first=False)


def slot(table: tuple[int, ...], position: int, block_size: int) -> int:
    """Return the device slot of the token at this position (slide deck, chapter 9)."""
    return table[position // block_size] * block_size + position % block_size
