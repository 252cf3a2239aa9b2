"""KV-cache blocks: which are free. Block numbers are names; 0 is the padding block."""

from typing import NamedTuple


class Pool(NamedTuple):
    """Blocks given back, and the first that was never handed out."""

    returned: tuple[int, ...] = ()
    fresh: int = 1


def take(pool: Pool, count: int) -> tuple[tuple[int, ...], Pool]:
    """`count` blocks, those given back first, and the pool without them."""
    if count <= 0:
        return (), pool
    reused, left = pool.returned[:count], pool.returned[count:]
    fresh = pool.fresh + count - len(reused)
    return reused + tuple(range(pool.fresh, fresh)), Pool(left, fresh)


def give_back(pool: Pool, blocks: tuple[int, ...]) -> Pool:
    """The pool with `blocks` free again."""
    return Pool(pool.returned + blocks, pool.fresh)
