"""Groups of the KV cache after the first: the content of their blocks, as far as a client can tell.

Source: release 0.33.0, SlidingWindowManager and SlidingWindowSpec.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ....model.pool import Content, prefix
from ...history.content import coming_tokens
from .request_history import VllmRequestHistory

Config = Mapping[str, Any]
NULL_BLOCK = 0
WINDOW = "sliding_window"


class Groups(NamedTuple):
    """The full blocks of the groups after the first.

    Attributes:
        holds: for each block number, the group and all tokens up to the end of the block.
        unseen: the same for blocks whose numbers were not shown because their requests ended in the
            step.
    """

    holds: Mapping[int, tuple[int, Content]] = MappingProxyType({})
    unseen: frozenset[tuple[int, Content]] = frozenset()


def further(config: Config) -> list[int | None]:
    """Return the windows of the groups after the first, in tokens; None for full attention."""
    return [group.get("window") for group in config.get("kv_groups", ())[1:]]


def first_block_read(config: Config, window: int | None, computed: int) -> int:
    """Return the first block that is read to compute the token after the `computed` ones."""
    oldest = 0 if window is None else computed - (window - 1)
    return max(oldest, 0) // int(config["block_size"])


def at_most(config: Config, window: int | None, blocks: int) -> int:
    """Return the most blocks of a group that a request of this many blocks holds at once.

    With a window, these are the blocks of the window and of a step, and one in which the window
    begins.
    """
    if window is None:
        return blocks
    tokens = min(window - 1 + config["max_num_batched_tokens"], config["max_model_len"])
    return int(min(blocks, -(-tokens // config["block_size"]) + 1))


def blocks_of_all(config: Config, blocks: int) -> int:
    """Return the most blocks that a request of this many blocks holds at once, in all groups."""
    return blocks + sum(at_most(config, window, blocks) for window in further(config))


def longest_in_pool(config: Config) -> int:
    """Return the blocks of full attention of the longest request that fits into the pool."""
    size = int(config["num_blocks"])
    return max((n for n in range(1, size + 1) if blocks_of_all(config, n) <= size), default=0)


def content_until(config: Config, request: VllmRequestHistory, place: int) -> Content:
    """Return the tokens of a request up to the end of a block, which identify its content, whatever
    precedes it in the table."""
    return prefix(coming_tokens(request), (place + 1) * int(config["block_size"]))
