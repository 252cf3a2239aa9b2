"""Partitions of the prefix cache: requests with different salts or adapters share no blocks.

Source: release 0.33.0: generate_block_hash_extra_keys. A block is found by all tokens up to its
end, so marking the first segment of a prompt is enough.
"""

from ..pool import Content
from ..scenario import Request


def content(request: Request) -> Content:
    """Return the segments of a prompt; the name of the first one includes the partition
    (V1-R40)."""
    if request.cache_salt is None and request.lora is None:
        return request.prompt
    (name, length), *others = request.prompt
    return ((f"{name} of adapter {request.lora!r}, salt {request.cache_salt!r}", length), *others)
