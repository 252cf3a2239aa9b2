"""Blocks of full attention that requests have given back and that nobody has received since.

A client sees both events in the block tables. When a request gives back its blocks, its table
disappears. When another request receives one of them, the block appears in a table. If a step may
have handed out blocks that it does not show, nothing is known about the order of the pool any more.

Source: release 0.33.0: KVCacheManager.free, BlockPool.free_blocks.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from ....model.observation import Step
from ...history.prefix_hits import caches
from ...history.run_history import RunHistory
from . import groups, kept_in_groups
from .run import GivenBack

Known = TypeVar("Known")  # what is known of a block


def are_followed(config: Mapping[str, Any]) -> bool:
    """Return whether each request gives back all its blocks at once, and a client can see that."""
    return caches(config) and not groups.hits_inside(config)


def after(history: RunHistory[Any], step: Step, given_back: GivenBack) -> GivenBack:
    """Return the blocks that are still in the pool after the step."""
    kept, gone = still_free(history, step, given_back)
    if not gone:
        return kept
    held = held_after(step)
    # A block that several requests shared becomes free when the last of them gives it back,
    # whichever that is.
    holders = Counter(block for table in gone.values() for block in table)
    for name, table in gone.items():
        for place, block in enumerate(table):
            if block not in held and holders[block] == 1:
                kept[block] = name, history.step, place
    return kept


def still_free(
    history: RunHistory[Any], step: Step, given_back: Mapping[int, Known]
) -> tuple[dict[int, Known], dict[str, tuple[int, ...]]]:
    """Return two things: the blocks of `given_back` that are still in the pool after the step, and
    the block tables of the requests that give back their blocks in this step. Both are empty if
    unknown."""
    last = history.last
    if step.blocks is None or last is None or last.blocks is None:
        return {}, {}
    gone = last.blocks.keys() - step.blocks.keys()
    if not (given_back or gone) or is_unsure(history, step):
        return {}, {}
    kept = dict(given_back)  # most steps hand out only a few blocks
    for block in kept.keys() & held_after(step):
        del kept[block]
    return kept, {name: last.blocks[name] for name in gone}


def is_unsure(history: RunHistory[Any], step: Step) -> bool:
    """Return whether a request may have received blocks in this step without the step showing
    it."""
    if step.preempted or kept_in_groups.something_unseen(history, step):
        return True
    return groups.are_several(history.config) and _is_sent_without_window(history, step)


def _is_sent_without_window(history: RunHistory[Any], step: Step) -> bool:
    """Return whether a request ends in the step that computes it, and its blocks are sent. It may
    have received blocks in this step that have left its windows since; they are not shown."""
    ends = {*(step.finished or {}), *history.aborts_inside}
    return any(name in step.scheduled for name in ends & (step.blocks or {}).keys())


def held_after(step: Step) -> set[int]:
    tables = kept_in_groups.tables_of(step).values()
    return {block for own in tables for table in own for block in table}
