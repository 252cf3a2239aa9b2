"""Partitions of the prefix cache: equal tokens with another salt or adapter are other blocks.

Source: release 0.33.0: generate_block_hash_extra_keys. A block is found by all tokens up to its
end, so it is enough to mark the first segment of a prompt.
"""

from ..pool import Content
from ..scenario import Request


def content(request: Request) -> Content:
    """Return the segments of a prompt, the first one named by its partition as well (V1-R40)."""
    if request.cache_salt is None and request.lora is None:
        return request.prompt
    (name, length), *others = request.prompt
    return ((f"{name} of adapter {request.lora!r}, salt {request.cache_salt!r}", length), *others)
