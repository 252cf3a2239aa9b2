"""Generators for groups of the KV cache, and for pools that have little room for them."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from ...model.pool import blocks_for
from ..history.prefix_hits import caches
from . import CIRCULAR_BUFFERS, EVERY_STATE, INSIDE_BLOCKS, MAMBA_LAYERS
from .history import groups, loads, speculation

Config = Mapping[str, Any]
FULL = {"kind": "full"}


@st.composite
def kv_groups(draw: st.DrawFn, config: Config, avoid: frozenset[str]) -> dict[str, Any]:
    """Draw one or two groups in addition to full attention, and a pool only slightly larger than
    the longest request needs.

    Most groups of attention layers have a window or a chunk of one or a few blocks. Sometimes there
    is also a circular buffer.
    """
    block, length = config["block_size"], config["max_model_len"]
    windows = st.sampled_from((block + 1, 2 * block, 2, 3 * block + 1, block, length + 1))
    slides = windows.map(lambda tokens: {"kind": groups.WINDOW, "window": max(tokens, 2)})
    chunks = st.integers(1, 3).map(lambda n: {"kind": groups.CHUNKS, "window": n * block})
    drafts = speculation.drafts(config)
    if speculation.lookahead(config) and caches(config):
        chunks = slides  # vLLM does not support chunks here
    no_mamba = MAMBA_LAYERS in avoid or loads.are_made(config)
    no_mamba = no_mamba or (caches(config) and drafts >= block)
    states = chunks if no_mamba else st.just({"kind": groups.MAMBA})
    own_sizes = draw(st.sampled_from((False, True, False)))
    if own_sizes:
        # Neither Mamba layers nor local chunks can have blocks of a different size.
        more = st.lists(st.one_of(slides, st.just(FULL)), max_size=1)
        further = [draw(with_block_size(block, group)) for group in (draw(slides), *draw(more))]
    else:
        more = st.lists(st.one_of(slides, chunks, st.just(FULL), states), max_size=1)
        further = [draw(st.one_of(slides, states, slides, chunks)), *draw(more)]
    if not (CIRCULAR_BUFFERS in avoid or loads.are_made(config)):
        buffer = {"kind": groups.BUFFER}
        sized = with_block_size(block, buffer) if own_sizes else st.just(buffer)
        further += draw(st.sampled_from((*3 * (False,), True))) * [draw(sized)]
    drawn: dict[str, Any] = {"kv_groups": [FULL, *further]}
    keeps_states = groups.caches_states({**config, **drawn}) and not drafts
    if keeps_states and EVERY_STATE not in avoid:
        drawn |= draw(st.sampled_from(({}, {}, {"mamba_cache_mode": "all"})))
    if groups.aligns({**config, **drawn}):
        drawn["enable_chunked_prefill"] = True
        others = {group["kind"] for group in further} - {groups.MAMBA, groups.BUFFER}
        if not (drafts or others or INSIDE_BLOCKS in avoid):
            drawn |= draw(match_units(block))
    units = draw(st.sampled_from((0, None, None, 0, 2, None, 1, 0, 3)))
    if units is not None:
        every = units * groups.hit_unit({**config, **drawn})
        kinds = {group["kind"] for group in further}
        # Without a prefix cache, a Mamba state takes one block, which has room for the longest
        # request.
        kept = config["enable_prefix_caching"] or groups.MAMBA not in kinds
        can_be_few = kept and kinds & {groups.WINDOW, groups.MAMBA}
        drawn["prefix_cache_retention_interval"] = every if can_be_few else 0
    if config["num_blocks"] is None:
        return drawn
    blocks = blocks_for(length, block)
    # A server counts one more block for each window, even if no request is long enough to need it.
    most = length + speculation.most_ahead(config)
    longest = groups.blocks_of_all({**config, **drawn}, most) + len(further)
    pool = longest + draw(st.sampled_from((0, 1, blocks, 0, 2 * blocks)))
    return {**drawn, "num_blocks": pool, "watermark": draw(watermarks(pool))}


def match_units(block: int) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the unit of prefix hits. In two of three configurations, it is shorter than a block."""
    shorter = [unit for unit in (2, 1, 3, 4, 8) if unit < block and not block % unit]
    return st.sampled_from(({}, *[{"prefix_match_unit": unit} for unit in shorter[:2]]))


def with_block_size(block: int, group: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the size of a group's blocks; in full attention, they have `block` tokens."""
    less = (max(block // 2, 1), max(block - 1, 1))
    sizes = st.sampled_from((2 * block, less[0], 4 * block, 3 * block, less[1]))
    return sizes.map(lambda size: {**group, "block_size": size} if size != block else group)


def watermarks(num_blocks: int | None) -> st.SearchStrategy[float]:
    """Draw the watermark as a fraction of the pool: either no block, or between one block and a
    third of the pool.

    Block 0 is never handed out. The fraction is always half a block away from a whole number of
    blocks, so it makes no difference whether block 0 counts as part of the pool.
    """
    if num_blocks is None:
        return st.sampled_from((0.0, 0.1))
    shares = st.integers(1, max(num_blocks // 3, 1)).map(
        lambda blocks: round((blocks + 0.5) / (num_blocks + 1), 4)
    )
    return st.one_of(st.just(0.0), shares)
