"""The events that tell routers which blocks the prefix cache can find.

Source: release 0.33.0: vllm.distributed.kv_events, the docstrings of its events; KVEventsConfig;
BlockPool.emit_cached_block_events, its docstring.
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ..history.cache_events import are_published, published
from ..history.run import VllmRun, routing_after

SHOWN = 3  # how many names a message lists at most


def believed_in_vain(history: VllmRun, step: Step) -> str | None:
    """A router that follows the events never relies on a block that cannot be found (V1-R98)."""
    routing = routing_after(history, step)
    if not (gone := routing.known - routing.cached):
        return None
    return f"events say that {_blocks(gone)} can be found, but the prefix cache has no such block"


def something_leaves_the_cache(history: VllmRun, step: Step) -> bool:
    return any(event.kind != "stored" for event in published(step).events)


def found_unannounced(history: VllmRun, step: Step) -> str | None:
    """A router that follows the events knows every block that can be found (V1-R99)."""
    routing = routing_after(history, step)
    if not (unknown := routing.cached - routing.known):
        return None
    if taken_back := unknown & _removed(step):
        return f"an event removes {_blocks(taken_back)}, of which a copy can still be found"
    return f"{_blocks(unknown)} can be found, but no event says so"


def something_enters_the_cache(history: VllmRun, step: Step) -> bool:
    return any(event.kind == "stored" and event.blocks for event in published(step).events)


def tokens_differ(history: VllmRun, step: Step) -> str | None:
    """An event lists the tokens of the blocks that it names, and no others (V1-R95)."""
    for event in published(step).events:
        whole = len(event.blocks) * event.block_size
        if event.kind == "stored" and event.tokens != whole:
            hold = f"{whole} ({len(event.blocks)} x {event.block_size})"
            return f"an event lists {event.tokens} tokens, but its blocks hold {hold}"
    return None


def _removed(step: Step) -> set[str]:
    events = published(step).events
    return {name for event in events if event.kind == "removed" for name in event.blocks}


def _blocks(names: set[str] | frozenset[str]) -> str:
    first = sorted(names)[:SHOWN]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"block{'s' * (len(names) > 1)} {', '.join(first)}{more}"


PREDICATES = {
    "V1-R95": Predicate(tokens_differ, something_enters_the_cache, only_with=are_published),
    "V1-R98": Predicate(believed_in_vain, something_leaves_the_cache, only_with=are_published),
    "V1-R99": Predicate(found_unannounced, something_enters_the_cache, only_with=are_published),
}
