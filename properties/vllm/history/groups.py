"""Groups of the KV cache behind the first: what their blocks hold, as far as a client can see it.

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
    """The full blocks of further groups.

    Attributes:
        holds: by block number, the group and all tokens up to the end of the block.
        unseen: the same of blocks whose numbers were not shown: their requests ended in the step.
    """

    holds: Mapping[int, tuple[int, Content]] = MappingProxyType({})
    unseen: frozenset[tuple[int, Content]] = frozenset()


def further(config: Config) -> list[int | None]:
    """Return the windows of the groups behind the first, in tokens; None for full attention."""
    return [group.get("window") for group in config.get("kv_groups", ())[1:]]


def first_block_read(config: Config, window: int | None, computed: int) -> int:
    """Return the first block that is read to compute the token behind so many."""
    oldest = 0 if window is None else computed - (window - 1)
    return max(oldest, 0) // int(config["block_size"])


def at_most(config: Config, window: int | None, blocks: int) -> int:
    """Return the most blocks of a group that a request holds at once which is so many blocks long:
    the window, the tokens of a step, and a block in which the window begins."""
    if window is None:
        return blocks
    tokens = min(window - 1 + config["max_num_batched_tokens"], config["max_model_len"])
    return int(min(blocks, -(-tokens // config["block_size"]) + 1))


def blocks_of_all(config: Config, blocks: int) -> int:
    """Return the most blocks that a request of so many blocks holds at once, in all groups."""
    return blocks + sum(at_most(config, window, blocks) for window in further(config))


def longest_in_pool(config: Config) -> int:
    """Return the blocks of full attention of the longest request for which the pool has room."""
    size = int(config["num_blocks"])
    return max((n for n in range(1, size + 1) if blocks_of_all(config, n) <= size), default=0)


def content_until(config: Config, request: VllmRequestHistory, place: int) -> Content:
    """Return the tokens of a request up to the end of a block: a block holds these, whatever is
    before it in the table."""
    return prefix(coming_tokens(request), (place + 1) * int(config["block_size"]))
