"""Prefix caching: what of the cached blocks of a prompt saves a chunk.

Source: Spyre scheduling page, "Prefix caching".
"""


def usable_blocks(left_padding: int, hit: int, chunk_count: int, chunk_blocks: int) -> int:
    """Blocks of the `hit` that lie in whole cached chunks, the last chunk never among them.

    All in blocks. The others are computed again, and what that writes goes to block 0.
    """
    chunks = min((left_padding + hit) // chunk_blocks, chunk_count - 1)
    return max(chunks * chunk_blocks - left_padding, 0)
