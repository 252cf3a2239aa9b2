"""Mamba layers with a prefix cache: a chunk ends where a state can be found.

Source: releases 0.28.0 and 0.33.0, Scheduler._mamba_block_aligned_split, MambaManager.

A state summarises all tokens before it. A step reads the state that the previous step left, and
leaves the next one in the last block of its tokens (`kv_groups`). Such a block can be found only if
it contains the state after the block's last token. So the chunks of a prefill end at block
boundaries (`mamba_cache_mode` align). With the mode all, a step leaves a state at the end of each
block, and chunks may end anywhere.
"""

from collections.abc import Callable

from . import kv_groups, partial_hits
from .config import VllmConfig
from .queue import Plan
from .state import Sequence

# Returns the last block boundary at which the prefill of this many tokens must stop.
LastStop = Callable[[VllmConfig, int], int]


def last_stop(config: VllmConfig, tokens: int) -> int:
    """Return the last block boundary, even if it is the end of the tokens. If the drafter has its
    own keys and values, return the boundary before that one, because hits are then one block
    shorter (V1-R61)."""
    last = tokens // config.block_size * config.block_size
    return max(last - config.block_size, 0) if config.lookahead else last


def chunk(
    config: VllmConfig,
    sequence: Sequence,
    start: int,
    tokens: int,
    junction: int,
    last: LastStop = last_stop,
) -> int:
    """Return how many tokens a request computes, beginning at `start`: at most `tokens`, and
    perhaps none.

    A chunk of a prefill ends at a block boundary, unless it is the last chunk, or a block is too
    large for one chunk (V1-R56). No chunk extends past the last stop, past the end of the block in
    which it begins, or past the `junction`, the end of the tokens that full attention has cached
    (V1-R69).
    """
    end, size = start + tokens, config.block_size
    prefill = max(sequence.prompt, sequence.num_tokens - 1)
    if start >= prefill or config.leaves_every_state:
        return tokens
    most = min(
        config.max_num_batched_tokens, config.long_prefill_token_threshold or config.max_model_len
    )
    boundary = end // size * size
    if end < prefill and (boundary > start or size <= most):
        end = boundary
    stops = [last(config, sequence.num_tokens)]
    if config.hits_inside and (tail := partial_hits.tail_end(config, sequence)) > stops[0]:
        stops.append(tail)
    if start % size:
        stops.append((start // size + 1) * size)
    if start < junction < end:
        stops.append(start + (junction - start) // size * size)
    return max(min((stop for stop in stops if start < stop < end), default=end) - start, 0)


def next_chunk(config: VllmConfig, sequence: Sequence, tokens: int, last: LastStop) -> int:
    """Return how many tokens a running request computes, as in `chunk`."""
    return chunk(config, sequence, sequence.computed, tokens, sequence.junction, last)


def first_chunk(
    config: VllmConfig, plan: Plan, sequence: Sequence, hit: int, tokens: int, last: LastStop
) -> int:
    """Return how many tokens a waiting request with a hit of `hit` blocks computes, as in `chunk`.
    Return 0 if the request must wait for a state of its hit."""
    if is_being_computed(config, plan, sequence, hit):
        return 0
    junction = kv_groups.junction_of(config, plan.pool, sequence, hit)
    start = hit * config.block_size + sequence.inside
    return chunk(config, sequence, start, tokens, junction, last)


def is_being_computed(config: VllmConfig, plan: Plan, sequence: Sequence, hit: int) -> bool:
    """Return whether a request that is already part of this step computes a state of the hit.

    The state can be read only after the step, so the waiting request must wait (V1-R57).
    """
    if config.hits_inside:
        tokens = hit * config.block_size + sequence.inside
        computing = [other for other in plan.running if other.id in plan.scheduled]
        return partial_hits.is_being_computed(config, plan.pool, sequence, tokens, computing)
    return any(
        kv_groups.name(config, sequence, number, hit - 1) in published_now(config, plan, number)
        for number, group in enumerate(config.more_groups)
        if hit and group.kind == "mamba"
    )


def published_now(config: VllmConfig, plan: Plan, number: int) -> list[object]:
    """Return the names of the states that this step leaves after a whole number of blocks."""
    group, size = config.more_groups[number], config.block_size
    return [
        kv_groups.name(config, other, number, place)
        for other in plan.running
        if other.id in plan.scheduled
        for place in range(other.computed // size, other.full[number])
        if other.tables[number][place] != kv_groups.NULL
        and kv_groups.is_retained(config, other, group, place)
    ]
