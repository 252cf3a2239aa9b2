"""Which runs can be followed without all of their past."""

from collections.abc import Mapping
from typing import Any

from ..vllm.history import in_flight, loads
from .prefix_hits import caches

# Their caches find a request by what blocks hold. nano-vLLM's also keeps the number of a block that
# was written over; LLMServingSim has a witness that asks, of prompts that a cache would know.
FIND_WHAT_BLOCKS_HOLD = frozenset({"spyre", "vllm"})


def may_forget(system: str, config: Mapping[str, Any]) -> bool:
    """No rule asks for requests that have ended and whose tokens no block holds any more."""
    if system == "llmservingsim":
        return False
    if not caches(config):
        return True
    one_by_one = in_flight.depth(config) == 1 and not loads.are_made(config)
    return system in FIND_WHAT_BLOCKS_HOLD and one_by_one
