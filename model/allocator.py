"""Take, publish and give back the blocks of a request. A published block can be found by its
content.

All systems share this mechanism. Each system decides when blocks are taken and published, which
freed block is handed out first, and whether all blocks with the same content can be found, or only
the newest. Counts are in blocks, lengths in tokens.
"""

from collections.abc import Container
from typing import TypeVar

from .pool import Content, Pool, blocks_for, publish, take, touch
from .sequence import Sequence

One = TypeVar("One", bound=Sequence)


def start(pool: Pool, sequence: One, hit: tuple[int, ...], block_size: int) -> tuple[One, Pool]:
    """Return the sequence and the pool after the sequence has taken the cached blocks of `hit`."""
    tokens = len(hit) * block_size
    admitted = sequence._replace(computed=tokens, prefix_hit=tokens, blocks=hit, published=len(hit))
    return admitted, touch(pool, hit)


def missing_blocks(sequence: Sequence, covered: int, block_size: int) -> int:
    """Return how many more blocks the sequence needs for its first `covered` tokens. The number is
    negative if the sequence has blocks for more tokens."""
    return blocks_for(covered, block_size) - len(sequence.blocks)


def hold(pool: Pool, sequence: One, covered: int, block_size: int) -> tuple[One, Pool]:
    """Return the sequence with blocks for its first `covered` tokens, and the rest of the pool."""
    missing = missing_blocks(sequence, covered, block_size)
    if missing <= 0:
        return sequence, pool
    new, pool = take(pool, missing)
    return sequence._replace(blocks=sequence.blocks + new), pool


def publish_full(
    pool: Pool, sequence: One, covered: int, block_size: int, *, newest_only: bool = False
) -> tuple[One, Pool]:
    """Publish the full blocks of the sequence's first `covered` tokens, so that other requests can
    hit them. These tokens must be computed by the end of this step (ALL-R08).

    With `newest_only`, only the newest of several blocks with the same content can be found.
    """
    full = covered // block_size
    if full <= sequence.published:
        return sequence, pool
    filled = [
        (sequence.blocks[number], sequence.name(number, block_size))
        for number in range(sequence.published, full)
    ]
    if newest_only:
        pool = pool._replace(
            cached={**pool.cached, **{content: (block,) for block, content in filled}}
        )
    else:
        pool = publish(pool, filled)
    return sequence._replace(published=full), pool


def freed(
    sequence: Sequence, held: Container[int], block_size: int
) -> list[tuple[int, Content | None]]:
    """Return the blocks that the sequence gives back, the last block first. Each block comes with
    the content by which it can be found, or None. Blocks in `held`, which other requests hold, stay
    in use (ALL-R09).
    """
    return [
        (
            block,
            sequence.name(number, block_size) if number < sequence.published else None,
        )
        for number, block in reversed(list(enumerate(sequence.blocks)))
        if block not in held
    ]
