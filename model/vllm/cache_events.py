"""Events that tell routers which blocks the prefix cache can find.

Source: release 0.33.0: BlockStored, BlockRemoved, AllBlocksCleared, Scheduler.update_from_output. A
router follows the events of all its servers, and sends a request to the server that has most of the
prompt in its cache.
"""

from typing import Any

from ..pool import NOTHING_CACHED, Content
from .config import VllmConfig
from .state import State


def publish(
    config: VllmConfig, before: State, state: State, seen: dict[str, Any]
) -> tuple[State, dict[str, Any]]:
    """Return the state, and the observation `seen` with the events since the last publication.

    The events name each block that can now be found (V1-R99), with its tokens (V1-R95), and each
    block that can no longer be found (V1-R98). A step in which no decision completes publishes
    nothing.
    """
    known = NOTHING_CACHED if state.published is None else state.published
    cached = state.pool.cached
    if seen["scheduled"] and len(state.in_flight) > len(before.in_flight):
        return state, seen | {"cache_events": {}}
    if known is cached:
        return state, seen | {"cache_events": {"events": []}}
    left = [name_of(content) for content in known if content not in cached]
    events: list[dict[str, Any]] = [{"kind": "removed", "blocks": left}] if left else []
    new = [content for content in cached if content not in known]
    for content in new:
        size = size_of(config, content)
        stored = {"kind": "stored", "blocks": [name_of(content)]}
        events.append(stored | {"tokens": size, "block_size": size})
    changes = {"events": events, "entered": [name_of(content) for content in new], "left": left}
    return state._replace(published=cached), seen | {"cache_events": changes}


def name_of(content: Content) -> str:
    return "/".join([f"{segment} {length}" for segment, length in content])


def size_of(config: VllmConfig, content: Content) -> int:
    """Return how many tokens a block with this content has. The content's first segment names the
    group of the block."""
    numbers = {f"group {number}": number for number in range(len(config.more_groups))}
    segment, length = content[0]
    if length or segment not in numbers:
        return config.block_size
    return config.size_of(config.more_groups[numbers[segment]])
