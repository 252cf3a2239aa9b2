"""KV groups after the first: windows that slide, and hits that are whole.

Source: release 0.33.0, SlidingWindowManager, HybridKVCacheCoordinator, KVCacheManager.
"""

from collections.abc import Iterator

from ....model.observation import Step
from ...history.prefix_hits import caches
from ...rules.pool import blocks_for, free_when_decided, held_after
from ...rules.predicate import Predicate
from ..history.groups import NULL_BLOCK, at_most, content_until, first_block_read, further
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, groups_after
from .decision import admitted, kept, waited_before


def computing(
    history: VllmRun, step: Step
) -> Iterator[tuple[VllmRequestHistory, int, tuple[int, ...], int]]:
    """Yield each group after the first, for each request that computes and stays.

    Each item has the request, the number of the group, its table after the step, and the first
    block that it reads in the step.
    """
    for number, group in enumerate(further(history.config)):
        for name in step.scheduled:
            request, tables = history.live.get(name), (step.group_blocks or {}).get(name, ())
            if request is None or number >= len(tables):
                continue
            hit = 0 if request.started else history.hit_now(step, request)
            if hit is not None:
                first = first_block_read(history.config, group, request.computed + hit)
                yield request, number, tables[number], first


def kept_out_of_the_window(history: VllmRun, step: Step) -> str | None:
    """A request that computes has given back the blocks that slid out of its window (V1-R51)."""
    for request, number, table, first in computing(history, step):
        for place, block in enumerate(table[:first]):
            if block != NULL_BLOCK:
                return (
                    f"{request.id} computes token {request.computed}, and holds block {block} at "
                    f"place {place} of group {number + 1}, which reads from block {first} on"
                )
    return None


def something_slides_out(history: VllmRun, step: Step) -> bool:
    return any(request.started and first > 0 for request, _, _, first in computing(history, step))


def lost_in_the_window(history: VllmRun, step: Step) -> str | None:
    """A request has every block that it reads or writes in a group (V1-R52)."""
    for request, number, table, first in computing(history, step):
        needed = len((step.blocks or {}).get(request.id, table))
        if len(table) != needed:
            return (
                f"{request.id} has {len(table)} blocks in group {number + 1}, but {needed} blocks "
                "of full attention"
            )
        if NULL_BLOCK in table[first:]:
            place = table.index(NULL_BLOCK, first)
            return (
                f"{request.id} reads or writes block {place} of group {number + 1}, which it does "
                "not hold"
            )
    return None


def window_slides(history: VllmRun, step: Step) -> bool:
    return any(0 < first < len(table) for _, _, table, first in computing(history, step))


def hit_not_whole(history: VllmRun, step: Step) -> str | None:
    """What a group reads of a hit holds the tokens of the request in this group (V1-R53)."""
    known = groups_after(history, step)
    for request, number, table, first in _hits(history, step):
        hit = history.hit_now(step, request) or 0
        for place in range(first, hit // int(history.config["block_size"])):
            block = table[place] if place < len(table) else NULL_BLOCK
            content = number, content_until(history.config, request, place)
            if block == NULL_BLOCK:
                return f"{request.id} finds {hit} tokens; group {number + 1} lacks block {place}"
            if known.holds.get(block) != content and content not in known.unseen:
                return (
                    f"{request.id} finds {hit} tokens; block {block} of group {number + 1} does "
                    f"not hold those of its block {place}"
                )
    return None


def _hits(
    history: VllmRun, step: Step
) -> Iterator[tuple[VllmRequestHistory, int, tuple[int, ...], int]]:
    joins = {request.id for request in admitted(history, step)}
    for request, number, table, first in computing(history, step):
        if request.id in joins and history.hit_now(step, request):
            yield request, number, table, first


def hit_out_of_the_window(history: VllmRun, step: Step) -> bool:
    return caches(history.config) and any(first > 0 for *_, first in _hits(history, step))


def admitted_without_room(history: VllmRun, step: Step) -> str | None:
    """The blocks that a request needs for its admission are free (V1-R54).

    Without reserve_full_isl, these are the blocks of its first tokens in every group; with it,
    those of all its tokens, but for a window only as many as it ever holds at once.
    """
    for request, needed, free in rooms(history, step):
        if needed > free:
            groups = 1 + len(further(history.config))
            needs = f"it needs {needed} blocks in {groups} groups"
            return f"{request.id} admitted: {needs}, but {free} are free"
    return None


def rooms(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, int, int]]:
    """Yield each admitted request with the number of blocks that it needs in all groups, and the
    number of blocks free at that time.

    The iteration ends at a request whose hit or blocks are unknown.
    """
    beside, size = further(history.config), int(history.config["block_size"])
    if not beside or free_when_decided(history) is None or step.preempted:
        return
    tables, runs = held_after(step), [request.id for request in kept(history, step)]
    if not tables.keys() >= set(runs):
        return
    # Before a request is admitted, running requests have given back blocks and taken others.
    held = {block for name in runs for block in tables[name]}
    for request in admitted(history, step):
        hit = history.hit_now(step, request)
        if hit is None or request.id not in tables or request.tokens_loading:
            return
        cached = hit // size
        step_blocks = blocks_for(history, hit + step.scheduled[request.id]) - cached
        needed = (1 + len(beside)) * step_blocks
        if history.config["reserve_full_isl"]:
            whole = blocks_for(history, request.num_tokens)
            others = (at_most(history.config, group, whole) - cached for group in beside)
            needed = max(needed, whole - cached + sum(max(blocks, 0) for blocks in others))
        own = [(step.blocks or {})[request.id], *(step.group_blocks or {}).get(request.id, ())]
        needed += sum(
            block != NULL_BLOCK and block not in held for table in own for block in table[:cached]
        )
        yield request, needed, int(history.config["num_blocks"]) - len(held)
        held |= set(tables[request.id])


def a_window_saves_room(history: VllmRun, step: Step) -> bool:
    if not history.config["reserve_full_isl"]:
        return False
    return any(
        at_most(history.config, group, blocks) < blocks
        for group in further(history.config)
        for blocks in (
            blocks_for(history, request.num_tokens) for request in waited_before(history)
        )
    )


def held_twice(history: VllmRun, step: Step) -> str | None:
    """A block belongs to only one group, and has only one place in the tables (V1-R55)."""
    seen: dict[int, tuple[int, int]] = {}
    for name, tables in (step.group_blocks or {}).items():
        for number, table in enumerate(((step.blocks or {}).get(name, ()), *tables)):
            for place, block in enumerate(table):
                if block == NULL_BLOCK:
                    continue
                if seen.setdefault(block, (number, place)) != (number, place):
                    other, other_place = seen[block]
                    return (
                        f"block {block} is block {place} of {name} in group {number}, and block "
                        f"{other_place} in group {other}"
                    )
    return None


def groups_share_the_pool(history: VllmRun, step: Step) -> bool:
    return len([tables for tables in (step.group_blocks or {}).values() if any(tables)]) > 1


PREDICATES = {
    "V1-R55": Predicate(held_twice, groups_share_the_pool),
    "V1-R52": Predicate(lost_in_the_window, window_slides),
    "V1-R51": Predicate(kept_out_of_the_window, something_slides_out),
    "V1-R53": Predicate(hit_not_whole, hit_out_of_the_window),
    "V1-R54": Predicate(admitted_without_room, a_window_saves_room),
}
