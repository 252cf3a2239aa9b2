"""What a router knows that follows the events about the prefix cache.

Source: release 0.33.0: BlockStored, BlockRemoved, AllBlocksCleared.
"""

from collections.abc import Mapping
from typing import Any

from ....model.observation import CacheEvents, Step
from ...history.per_step_cache import once
from ...history.run_history import RunHistory
from .run import state_of

NOTHING = CacheEvents()


def are_published(config: Mapping[str, Any]) -> bool:
    return bool(config.get("kv_cache_events", "none") != "none")


def published(step: Step) -> CacheEvents:
    return step.cache_events or NOTHING


@once
def known_after(history: RunHistory[Any], step: Step) -> frozenset[str]:
    """Return the blocks that a router believes to be cached once it has read the step's events."""
    known = state_of(history).known_to_routers
    if not published(step).events:
        return known
    names = set(known)
    for event in published(step).events:
        if event.kind == "stored":
            names.update(event.blocks)
        elif event.kind == "removed":
            names.difference_update(event.blocks)
        else:
            names.clear()
    return frozenset(names)
