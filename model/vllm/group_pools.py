"""A pool for each KV group: a request needs room in all of them.

vLLM has one pool for all groups. SGLang and TensorRT-LLM have one for each: the blocks of full
attention come from one pool, those of the layers with a sliding window from another. So a request
may lack room for its windows while full attention has plenty, and the other way round.

Source: SGLang, SWATokenToKVPoolAllocator and PrefillAdder; TensorRT-LLM, WindowBlockManager. These
groups have no prefix cache here, so a waiting request holds no blocks.
"""

from collections.abc import Iterator

from ..pool import Pool, fits
from . import kv_groups
from .config import VllmConfig
from .parameters import PooledGroup
from .state import Sequence


def groups(config: VllmConfig) -> Iterator[PooledGroup]:
    """Yield the groups after the first."""
    yield from (group for group in config.more_groups if isinstance(group, PooledGroup))


def have_room_to_grow(config: VllmConfig, pool: Pool, sequence: Sequence, tokens: int) -> bool:
    """Return whether every further group has room for `tokens` more tokens of a running
    request."""
    covered = sequence.computed + tokens
    return all(
        fits(pool.beside[number], kv_groups.places_ahead(config, group, covered) - len(table))
        for number, (group, table) in enumerate(zip(groups(config), sequence.tables, strict=True))
    )


def have_room(config: VllmConfig, pool: Pool, sequence: Sequence, tokens: int) -> bool:
    """Return whether every further group has room for a waiting request.

    There must be room for the first `tokens` tokens, and for as many blocks as the request will
    hold in the group at once while its known tokens are computed.
    """
    return all(
        fits(
            pool.beside[number],
            max(
                kv_groups.places_ahead(config, group, tokens),
                kv_groups.reserved(config, group, sequence.num_tokens),
            ),
        )
        for number, group in enumerate(groups(config))
    )


def shortage(config: VllmConfig, tokens: int) -> str | None:
    """Return why a request of this many tokens never fits into the pool of a further group, or
    None."""
    for number, group in enumerate(groups(config), start=1):
        needed = kv_groups.most_blocks(config, group, tokens)
        if needed > group.num_blocks:
            return f"{needed} blocks of group {number}, but its pool has {group.num_blocks}"
    return None
