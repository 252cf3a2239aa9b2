"""KV groups after the first: the content of their blocks, as far as a client can tell.

Source: release 0.33.0, SlidingWindowManager, ChunkedLocalAttentionManager, MambaManager and
CircularBufferManager, and their specs.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ....model.pool import Content, blocks_for, prefix
from ...history.content import coming_tokens
from ...history.prefix_hits import caches
from .request_history import VllmRequestHistory
from .speculation import drafts, lookahead

Config = Mapping[str, Any]
NULL_BLOCK = 0
WINDOW, CHUNKS, MAMBA = "sliding_window", "chunked_local", "mamba"
BUFFER = "circular_buffer"


class Group(NamedTuple):
    """The kind of a group's layers, their window in tokens (None without a window), and the tokens
    in a block."""

    kind: str
    window: int | None
    size: int

    def blocks_for(self, tokens: int) -> int:
        return 1 if self.kind == BUFFER else blocks_for(tokens, self.size)

    def full_blocks(self, tokens: int) -> int:
        """Return how many blocks the first `tokens` tokens of a request fill. Other requests can
        find only full blocks. Return 0 for a circular buffer, because it is overwritten and its
        blocks can never be found."""
        return 0 if self.kind == BUFFER else tokens // self.size


class Groups(NamedTuple):
    """The full blocks of the groups after the first.

    Attributes:
        holds: for each block number, the group and all tokens up to the end of the block, or up to
            the state in the block.
        unseen: the same for blocks whose numbers were not shown because their requests ended in the
            step.
    """

    holds: Mapping[int, tuple[int, Content]] = {}
    unseen: frozenset[tuple[int, Content]] = frozenset()


# Maps each block that is still in the pool to its group, from 0, and its content.
Kept: TypeAlias = Mapping[int, tuple[int, Content]]


def further(config: Config) -> list[Group]:
    return [
        Group(group["kind"], group.get("window"), group.get("block_size", config["block_size"]))
        for group in config.get("kv_groups", ())[1:]
    ]


def hit_unit(config: Config) -> int:
    """Return the smallest number of tokens that fills whole blocks in every group."""
    return math.lcm(config["block_size"], *(group.size for group in further(config)))


def match_unit(config: Config) -> int:
    """Return the unit of prefix hits in tokens. It may be shorter than a block."""
    return int(config.get("prefix_match_unit") or hit_unit(config))


def hits_inside(config: Config) -> bool:
    """Return whether a hit may end inside a block. The request then copies the block."""
    return match_unit(config) < int(config["block_size"])


def are_several(config: Config) -> bool:
    return len(config.get("kv_groups", ())) > 1


def keeps_few_blocks(config: Config) -> bool:
    """Return whether later requests can find only a few blocks of a window and a few Mamba
    states."""
    return config.get("prefix_cache_retention_interval") is not None


def first_block_read(config: Config, group: Group, computed: int) -> int:
    """Return the first block that is read to compute the next token after `computed` tokens."""
    if group.kind == MAMBA:
        return last_place(config, computed)
    oldest = 0 if group.window is None else computed - (group.window - 1)
    if group.kind == CHUNKS and group.window is not None:
        oldest = computed - computed % group.window
    return max(oldest, 0) // group.size


def last_place(config: Config, computed: int) -> int:
    """Return the place of the block with the state after `computed` tokens."""
    return max(computed - 1, 0) // int(config["block_size"]) if caches(config) else 0


def states_left(config: Config, start: int, end: int) -> list[tuple[int, int]]:
    """Return the states that a step leaves if it computes the tokens from `start` to `end`: for
    each state, its place and the number of tokens before it."""
    if not leaves_every_state(config):
        return [(last_place(config, end), end)]
    size = int(config["block_size"])
    return [
        (place, min((place + 1) * size, end)) for place in range(start // size, -(-end // size))
    ]


def has_mamba(config: Config) -> bool:
    return number_of_mamba(config) > 0


def number_of_mamba(config: Config) -> int:
    return sum(group.kind == MAMBA for group in further(config))


def caches_states(config: Config) -> bool:
    return caches(config) and has_mamba(config)


def leaves_every_state(config: Config) -> bool:
    """Return whether a step leaves a Mamba state in every block, not only in the last one."""
    return config.get("mamba_cache_mode") == "all"


def aligns(config: Config) -> bool:
    """Return whether chunks end at block boundaries, where Mamba states can be cached."""
    return caches_states(config) and not leaves_every_state(config)


def new_blocks(config: Config, group: Group, places: int, cached: int) -> int:
    """Return how many blocks a group takes, in addition to `cached` blocks, to fill a table that
    has `places` entries."""
    if group.kind == MAMBA and not leaves_every_state(config):
        return int(places > cached) + drafts(config)
    return max(places - cached, 0)


def at_most(config: Config, group: Group, tokens: int) -> int:
    """Return the largest number of blocks of a group that a request of `tokens` tokens holds at
    once.

    With a window, these are the blocks of the window and of the tokens of all steps in flight, and
    one more, since the window may begin inside a block. A local chunk begins at a block boundary
    and needs no such block. In a Mamba group, these are the two states that a step reads and
    writes, or a single one that is overwritten. There is also one state after each draft.
    """
    blocks = group.blocks_for(tokens)
    if group.kind == MAMBA and not leaves_every_state(config):
        return min(blocks, 2 if caches(config) else 1) + drafts(config) + hits_inside(config)
    if group.window is None:
        return blocks
    begins = int(group.kind != CHUNKS)
    steps = 2 if config.get("async_scheduling") else 1
    at_once = group.window - begins + steps * config["max_num_batched_tokens"]
    at_once = min(at_once, config["max_model_len"])
    return int(min(blocks, group.blocks_for(at_once) + begins))


def blocks_of_all(config: Config, tokens: int) -> int:
    """Return the largest number of blocks that a request of `tokens` tokens holds at once, in all
    groups."""
    first = blocks_for(tokens, int(config["block_size"]))
    return first + sum(at_most(config, group, tokens) for group in further(config))


def blocks_if_all_kept(config: Config, tokens: int) -> int:
    """Return how many blocks, in all groups together, are filled by the first `tokens` tokens of a
    request and by its drafts."""
    groups = further(config)
    states = sum(group.kind == MAMBA for group in groups) * drafts(config)
    beside = sum(group.blocks_for(tokens) for group in groups)
    return blocks_for(tokens, int(config["block_size"])) + beside + states


def saved_by_hit(config: Config, held: int, found: int) -> int:
    """Return how many blocks a request need not take from the pool because of its prefix hit. The
    hit covers at least `found` tokens, and running requests hold the first `held` of these tokens
    in full attention. In a group with a window, the blocks that the hit does not read are not taken
    either."""
    if hits_inside(config):  # a hit that ends inside a block takes further blocks
        return 0
    windows = [group for group in further(config) if group.window is not None]
    unread = sum(first_block_read(config, group, found) for group in windows)
    return min(held, found) // int(config["block_size"]) + unread


def begins_a_block(config: Config, start: int, end: int) -> bool:
    """Return whether the tokens from `start` to `end` begin a block in a group whose blocks differ
    in size from those of full attention."""
    attention = {group.size for group in further(config) if group.kind != BUFFER}
    sizes = attention - {config["block_size"]}
    return any(blocks_for(end, size) > blocks_for(start, size) for size in sizes)


def most_taken(config: Config, blocks: int, requests: int) -> int:
    """Return the largest number of blocks that requests take in the groups after the first while
    they take `blocks` blocks in full attention.

    If a group's block size or lookahead differs from that of full attention, each request may take
    more blocks in that group: as many as the tokens of one full-attention block need, and one that
    is only partly filled.
    """
    size, most = int(config["block_size"]), 0
    for group in further(config):
        differs = group.size != size or (group.kind == MAMBA and lookahead(config) > 0)
        most += (blocks + requests * differs) * group.blocks_for(size) + requests * differs
    return most


def longest_in_pool(config: Config) -> int:
    """Return the number of full-attention blocks of the longest request that fits into the pool."""
    size, block = int(config["num_blocks"]), int(config["block_size"])
    fits = (n for n in range(1, size + 1) if blocks_of_all(config, n * block) <= size)
    return max(fits, default=0)


def content_of(request: VllmRequestHistory, tokens: int, drafts: int = 0) -> Content:
    return prefix(coming_tokens(request, drafts), tokens)


def content_until(
    group: Group, request: VllmRequestHistory, place: int, drafts: int = 0
) -> Content:
    """Return the tokens of a request up to the end of a block. They identify the content of the
    block, no matter which blocks come before it in the table. The last `drafts` of them are correct
    drafts that have not been verified yet."""
    return content_of(request, (place + 1) * group.size, drafts)
