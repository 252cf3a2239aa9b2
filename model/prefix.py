"""What is cached of a request's tokens: the longest run of full blocks that begins it.

What a block holds is named by the whole prefix that ends with it, as a chain of hashes would:
equal prefixes, equal names. So a request finds only blocks of its own tokens (ALL-R11).
"""

from .pool import Content, Pool


def prefix(content: Content, tokens: int) -> Content:
    """The first `tokens` tokens of `content`."""
    cut = []
    for stream, length in content:
        if tokens <= 0:
            break
        cut.append((stream, min(length, tokens)))
        tokens -= length
    return tuple(cut)


def cached_blocks(pool: Pool, content: Content, tokens: int, block_size: int) -> tuple[int, ...]:
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
