"""Prefix caching: which full blocks of a prompt are cached, and what of them saves a chunk.

Source: Spyre scheduling page, "Prefix caching". What a block holds is named by the whole prefix
that ends with it, as a chain of hashes would: equal prefixes, equal names.
"""

from ..scenario import Segment
from .pool import Pool

Prefix = tuple[Segment, ...]


def prefix(content: Prefix, tokens: int) -> Prefix:
    """The first `tokens` tokens of `content`."""
    cut: list[Segment] = []
    for stream, length in content:
        if tokens <= 0:
            break
        cut.append((stream, min(length, tokens)))
        tokens -= length
    return tuple(cut)


def cached_blocks(pool: Pool, content: Prefix, tokens: int, block_size: int) -> tuple[int, ...]:
    """The longest run of cached full blocks at the start of `tokens` tokens, by number.

    The last token is never taken from the cache: it must be computed to give the next one.
    """
    found: list[int] = []
    for number in range(1, (tokens - 1) // block_size + 1):
        holders = pool.cached.get(prefix(content, number * block_size))
        if not holders:
            break
        found.append(holders[0])
    return tuple(found)


def usable_blocks(left_padding: int, hit: int, chunk_count: int, chunk_blocks: int) -> int:
    """Blocks of the `hit` that lie in whole cached chunks, the last chunk never among them.

    All in blocks. The others are computed again, and what that writes goes to block 0.
    """
    chunks = min((left_padding + hit) // chunk_blocks, chunk_count - 1)
    return max(chunks * chunk_blocks - left_padding, 0)
