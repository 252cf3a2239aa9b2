"""Chunks that end where Mamba states can be cached, as far as a client can tell.

Source: releases 0.28.0 and 0.33.0, comments of Scheduler._mamba_block_aligned_split.
"""

from collections.abc import Mapping
from typing import Any

from .groups import match_unit
from .request_history import VllmRequestHistory
from .speculation import read_ahead

Config = Mapping[str, Any]


def prefill_end(request: VllmRequestHistory) -> int:
    """Return where the prefill ends: after the prompt or, if tokens were generated, before the last
    of them."""
    return max(request.prompt, request.num_tokens - 1)


def last_boundary(config: Config, request: VllmRequestHistory, *, before_end: bool) -> int:
    """Return the last block boundary whose state can be found. With `before_end`, the end of the
    known tokens does not count as a boundary. Otherwise, if a drafter reads ahead, the boundary is
    one block earlier, because the last block of a hit is computed again (V1-R61)."""
    size = int(config["block_size"])
    last = (request.num_tokens - before_end) // size * size
    return max(last - size, 0) if read_ahead(config) and not before_end else last


def exceeds_chunks(config: Config) -> bool:
    """Return whether a block is larger than the largest chunk that a step computes."""
    limits = (config["max_num_batched_tokens"], config["long_prefill_token_threshold"])
    return bool(config["block_size"] > min(limit for limit in limits if limit))


def end_of_chunk(
    config: Config, request: VllmRequestHistory, start: int, tokens: int, *, before_end: bool
) -> int:
    """Return the end of the chunk that begins at `start` and has at most `tokens` tokens. Assume
    that no other request has the same tokens."""
    size, end = int(config["block_size"]), start + tokens
    if start >= prefill_end(request):
        return end
    if end < prefill_end(request):
        whole = end - end % size
        end = end if whole <= start and exceeds_chunks(config) else max(whole, start)
    last = last_boundary(config, request, before_end=before_end)
    begun = start - start % size + size if start % size else 0
    stops = (last, begun, tail(config, request, last))
    return min([stop for stop in stops if start < stop < end], default=end)


def tail(config: Config, request: VllmRequestHistory, last: int = 0) -> int:
    """Return the last multiple of the hit unit in a prompt; a step leaves a state there. Return 0
    if the multiple is a block boundary, or lies within the first `last` tokens."""
    unit = match_unit(config)
    end = (request.prompt - 1) // unit * unit
    return end if end % config["block_size"] and end > last else 0
