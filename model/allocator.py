"""The blocks of a request: what it takes from the pool, publishes, and gives back.

One mechanism for the four systems. What they decide differently stays with them: when blocks are
taken and published, whether an index keeps every block of a content or the newest only, and which
freed block is handed out first. Counts are in blocks, lengths in tokens.
"""

from collections.abc import Container
from typing import TypeVar

from .pool import Content, Pool, blocks_for, prefix, publish, take, touch
from .sequence import Sequence

One = TypeVar("One", bound=Sequence)


def start(pool: Pool, sequence: One, hit: tuple[int, ...], block_size: int) -> tuple[One, Pool]:
    """The request with the cached blocks of its `hit`, which are in use from now on."""
    tokens = len(hit) * block_size
    admitted = sequence._replace(computed=tokens, prefix_hit=tokens, blocks=hit, published=len(hit))
    return admitted, touch(pool, hit)


def missing_blocks(sequence: Sequence, covered: int, block_size: int) -> int:
    """Blocks that the request lacks for its first `covered` tokens; not above 0 if it has them."""
    return blocks_for(covered, block_size) - len(sequence.blocks)


def hold(pool: Pool, sequence: One, covered: int, block_size: int) -> tuple[One, Pool]:
    """The request with blocks for its first `covered` tokens."""
    missing = missing_blocks(sequence, covered, block_size)
    if missing <= 0:
        return sequence, pool
    new, pool = take(pool, missing)
    return sequence._replace(blocks=sequence.blocks + new), pool


def publish_full(
    pool: Pool, sequence: One, covered: int, block_size: int, *, newest_only: bool = False
) -> tuple[One, Pool]:
    """The request whose full blocks among its first `covered` tokens can be found; they are to be
    computed, so that a hit covers nothing else (ALL-R08).

    `newest_only`: of two blocks with the same content the one that was filled last is found, and
    the other no more.
    """
    full = covered // block_size
    if full <= sequence.published:
        return sequence, pool
    filled = [
        (sequence.blocks[number], prefix(sequence.known, (number + 1) * block_size))
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
    """What the request gives back, its last block first, without those `held` by others (ALL-R09);
    with each block what it can be found by."""
    return [
        (
            block,
            prefix(sequence.known, (number + 1) * block_size)
            if number < sequence.published
            else None,
        )
        for number, block in reversed(list(enumerate(sequence.blocks)))
        if block not in held
    ]
