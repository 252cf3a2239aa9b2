"""What the events about the prefix cache tell a router.

Source: release 0.33.0: BlockStored, BlockRemoved, AllBlocksCleared.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....model.observation import CacheEvents, Step

NOTHING = CacheEvents()


def are_published(config: Mapping[str, Any]) -> bool:
    return bool(config.get("kv_cache_events", "none") != "none")


def published(step: Step) -> CacheEvents:
    return step.cache_events or NOTHING


class Routing(NamedTuple):
    """The prefix cache of a server, by the names of the blocks that can be found.

    `known` contains the blocks that can be found according to the published events, and `cached`
    those that can really be found.
    """

    known: frozenset[str] = frozenset()
    cached: frozenset[str] = frozenset()


def after(routing: Routing, changes: CacheEvents) -> Routing:
    """Return the state after the events of a step have been read."""
    if changes == NOTHING:
        return routing
    known = set(routing.known)
    for event in changes.events:
        if event.kind == "stored":
            known.update(event.blocks)
        elif event.kind == "removed":
            known.difference_update(event.blocks)
        else:
            known.clear()
    cached = routing.cached.difference(changes.left).union(changes.entered)
    return Routing(frozenset(known), cached)
