"""The memory accountant: which blocks are free, which request holds which, what can be found by
content.

Source: deck, chapters 5 "Memory, Blocks, and BlockManager" and 7 "Prefix Caching". It answers the
scheduler and never touches the device. Free blocks go from the front of a deque and come back at
its end; counts are in blocks.
"""

from .. import allocator
from ..pool import Pool, blocks_for, cached_blocks, fits, give_back, unheld
from .config import NanoConfig
from .state import Sequence


def prefix_hit(config: NanoConfig, pool: Pool, one: Sequence) -> tuple[int, ...]:
    """The cached blocks that begin a sequence and hold its own tokens (ALL-R11), all that are found
    (NAN-R34), whole ones (NAN-R32); its last block is always computed (NAN-R35)."""
    return cached_blocks(pool, one.known, one.num_tokens, config.block_size)


def unshared_blocks(config: NanoConfig, pool: Pool, one: Sequence, hit: tuple[int, ...]) -> int:
    """Free blocks that a sequence takes: those of its `hit` that a request holds cost nothing."""
    shared = len(hit) - unheld(pool, hit)
    return blocks_for(one.num_tokens, config.block_size) - shared


def allocate(
    config: NanoConfig, pool: Pool, one: Sequence, hit: tuple[int, ...]
) -> tuple[Sequence, Pool]:
    """The sequence with a block table for all its tokens, the first blocks shared or cached
    (NAN-R29)."""
    one, pool = allocator.start(pool, one, hit, config.block_size)
    return allocator.hold(pool, one, one.num_tokens, config.block_size)


def can_append(config: NanoConfig, pool: Pool, one: Sequence) -> bool:
    """The next token of a running sequence has a place: in its last block, or in a free one. That
    there is none is no error (ALL-R01)."""
    return not crosses(config, one) or fits(pool, 1)


def may_append(config: NanoConfig, pool: Pool, one: Sequence) -> tuple[Sequence, Pool]:
    """The sequence with a new block if it has just crossed a block border."""
    if not crosses(config, one):
        return one, pool
    return allocator.hold(pool, one, one.num_tokens, config.block_size)


def crosses(config: NanoConfig, one: Sequence) -> bool:
    """Its last token, which is to be computed, is the first of a block (NAN-R17)."""
    return one.num_tokens % config.block_size == 1


def hash_blocks(config: NanoConfig, pool: Pool, one: Sequence) -> tuple[Sequence, Pool]:
    """The sequence, and the pool in which its full and computed blocks can be found (ALL-R08).

    Of two blocks with the same content the one filled last is found.
    """
    return allocator.publish_full(pool, one, one.computed, config.block_size, newest_only=True)


def deallocate(pool: Pool, one: Sequence, others: tuple[Sequence, ...], block_size: int) -> Pool:
    """The pool without what `one` holds, its last block first; shared blocks stay, and none is lost
    (ALL-R09). What they hold is found until they are handed out (NAN-R48)."""
    held = {block for other in others if other.id != one.id for block in other.blocks}
    return give_back(pool, allocator.freed(one, held, block_size), nameless_first=False)


def slot(table: tuple[int, ...], position: int, block_size: int) -> int:
    """Where on the device the token at this position of a sequence is (deck, chapter 9)."""
    return table[position // block_size] * block_size + position % block_size
