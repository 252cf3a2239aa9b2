"""The full blocks that are still in the pool, in every group of the KV cache.

Blocks of generated tokens count only if no decision is in flight and there are no drafts.

A block keeps its content until it is handed out again. A client sees this, because the block then
appears in a block table without being a hit. If a request may have received blocks that the step
does not show, only blocks that requests hold both before and after the step are certain to be
intact. Once one copy of some content has been handed out, the remaining copies do not count,
because the index may have listed only the copy that is gone.

Source: release 0.33.0: HybridKVCacheCoordinator, BlockPool.
"""

from collections.abc import Iterator, Mapping, Set
from itertools import zip_longest
from typing import Any, TypeAlias

from ....model.observation import Step
from ....model.pool import Content
from ...history.kept_prefixes import of_partition
from ...history.prefix_hits import caches
from ...history.run_history import RunHistory
from . import groups, loads, speculation
from .groups import MAMBA, NULL_BLOCK, Group, Kept
from .request_history import VllmRequestHistory

Contents: TypeAlias = Set[tuple[int, Content]]
Tables: TypeAlias = Mapping[str, tuple[tuple[int, ...], ...]]


def are_followed(config: Mapping[str, Any]) -> bool:
    """Return whether a client can tell which blocks of several groups are still in the pool."""
    return (
        groups.are_several(config)
        and caches(config)
        and not groups.hits_inside(config)
        and not loads.are_made(config)
    )


def every_group(config: Mapping[str, Any]) -> list[Group]:
    """Return the groups. The first one is that of full attention."""
    return [Group("full", None, int(config["block_size"])), *groups.further(config)]


def tables_of(step: Step | None) -> Tables:
    """Return the block tables of each request that a step shows, one table for each group."""
    if step is None:
        return {}
    further = step.group_blocks or {}
    return {
        name: (tuple(table), *further.get(name, ())) for name, table in (step.blocks or {}).items()
    }


def handed_out(history: RunHistory[Any], step: Step) -> Iterator[tuple[str, set[int]]]:
    """Yield each request with the blocks that it received in this step, except those of its hit."""
    before, config = tables_of(history.last), history.config
    for name, tables in tables_of(step).items():
        request, known = history.live.get(name), before.get(name, ())
        hit = 0 if request is None or request.started else history.hit_now(step, request) or 0
        new: set[int] = set()
        for number, (group, table) in enumerate(zip(every_group(config), tables, strict=False)):
            old, first = known[number] if number < len(known) else (), group.full_blocks(hit)
            # A block may slide out of a window and come back at another place in the same step.
            places = zip_longest(table[first:], old[first:])
            new.update(block for block, was in places if block not in (was, NULL_BLOCK, None))
        yield name, new


def something_unseen(history: RunHistory[Any], step: Step) -> bool:
    """Return whether a request may have received blocks in this step that the step does not show.
    Such a request left in this step, or was preempted after it was scheduled."""
    if step.preempted and history.config.get("policy", "fcfs") != "fcfs":
        return True
    if loads.take_unseen(history, step):
        return True
    before, shown, every = tables_of(history.last), step.blocks or {}, every_group(history.config)
    for name, tokens in step.scheduled.items():
        request = history.live.get(name)
        if request is None or name in shown:
            continue
        tables, known = before.get(name, ()), history.hit_now(step, request)
        if len(tables) < len(every) or (known is None and not request.started):
            return True
        computed = request.computed + (known or 0) + tokens
        covered = speculation.slots(history.config, computed) + 1
        for group, table in zip(every, tables, strict=True):
            if group.kind == MAMBA or group.blocks_for(covered) > len(table):
                return True
    return False


def lost_in(history: RunHistory[Any], step: Step, kept: Kept, but: str = "") -> Contents:
    """Return the contents that may be gone after the step, because a request other than `but` has
    received one of their blocks, or may have received one that the step does not show."""
    shown = (blocks for name, blocks in handed_out(history, step) if name != but)
    gone = {block for blocks in shown for block in blocks}
    if something_unseen(history, step):
        gone.update(kept.keys() - _certain(history, step))
    return {kept[block] for block in gone & kept.keys()}


def _certain(history: RunHistory[Any], step: Step) -> Set[int]:
    """Return the blocks that no request can have received without the step showing it. Requests
    hold these blocks both before and after the step, or held them until they left."""
    before, now = (
        {block for tables in shown.values() for table in tables for block in table}
        for shown in (tables_of(history.last), tables_of(step))
    )
    return (before & now).union(*_held_until_end(history, step))


def _held_until_end(history: RunHistory[Any], step: Step) -> Iterator[Set[int]]:
    """Yield the blocks of each request that has left in the step, except those that slid out of a
    window before. No other request can have received them before it left."""
    for name, tables in tables_of(history.last).items():
        request, stays = history.live.get(name), name in (step.blocks or {})
        if request is None or stays or name in (step.preempted or ()):
            continue
        for group, table in zip(every_group(history.config), tables, strict=False):
            yield {*table[groups.first_block_read(history.config, group, request.computed) :]}


def after(history: RunHistory[Any], step: Step, kept: Kept) -> Kept:
    """Return the blocks that are in the pool after the step."""
    lost, filled = lost_in(history, step, kept), dict(_filled(history, step))
    if not lost and not filled:
        return kept
    return {block: content for block, content in kept.items() if content not in lost} | filled


def keep_output(history: RunHistory[Any]) -> bool:
    """Return whether blocks of generated tokens are certain to be found. A token in flight is not
    known yet, and a draft may be wrong."""
    config, features = history.config, history.features
    plain = features.depth(config) == 1 and not speculation.drafts(config)
    return plain and not groups.has_mamba(config) and features.caches_output(history.revision)


def _filled(history: RunHistory[Any], step: Step) -> Iterator[tuple[int, tuple[int, Content]]]:
    """Yield the blocks that the step fills with tokens that are certain to be found, each with its
    group and its content."""
    config, shown, outputs = history.config, tables_of(step), keep_output(history)
    for name, tokens in step.scheduled.items():
        request, tables = history.live.get(name), shown.get(name, ())
        leaves = name in (step.finished or {}) or name in (step.preempted or ())
        if request is None or leaves or name in history.aborts_inside:
            continue
        hit = 0 if request.started else history.hit_now(step, request)
        if hit is None:
            continue
        start = request.computed + hit
        end = min(start + tokens, request.num_tokens if outputs else request.prompt)
        for number, (group, table) in enumerate(zip(every_group(config), tables, strict=False)):
            for place in _places(config, group, start, end):
                if place < len(table) and table[place] != NULL_BLOCK:
                    yield table[place], (number, content_until(group, request, place))


def _places(config: Mapping[str, Any], group: Group, start: int, end: int) -> list[int]:
    if group.kind != MAMBA:
        return [*range(start // group.size, group.full_blocks(end))]
    if speculation.drafts(config):
        return []
    states = groups.states_left(config, start, end) if end > start else []
    return [place for place, tokens in states if tokens == (place + 1) * group.size]


def content_until(group: Group, request: VllmRequestHistory, place: int) -> Content:
    """Return the tokens of a request up to the end of a block, and its partition."""
    return of_partition(request, groups.content_until(group, request, place))
