"""KV groups after the first: sliding windows, Mamba states, and whole prefix hits.

Source: release 0.33.0, SlidingWindowManager, MambaManager, HybridKVCacheCoordinator,
KVCacheManager.
"""

from collections.abc import Iterator

from ....model.observation import Step
from ...history.content import in_common
from ...history.per_step_cache import once
from ...history.prefix_hits import caches
from ...rules.pool import blocks_for, free_when_decided, held_after, hit_too_short
from ...rules.predicate import Predicate
from ..history import in_flight, mamba, speculation
from ..history.groups import (
    BUFFER,
    MAMBA,
    NULL_BLOCK,
    Group,
    aligns,
    are_several,
    at_most,
    content_of,
    content_until,
    first_block_read,
    further,
    has_mamba,
    hit_unit,
    keeps_few_blocks,
    last_place,
    leaves_every_state,
    match_unit,
    new_blocks,
)
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, groups_after, state_of
from .decision import admitted, kept, since, waited_before


def blocks_read(
    history: VllmRun, step: Step
) -> Iterator[tuple[VllmRequestHistory, int, tuple[int, ...], int]]:
    """Yield what each request reads in this step, for each group after the first: the request, the
    number of the group (from 0), the request's block table in that group after the step, and the
    place of the first block read. Requests that end in the step are left out.
    """
    for number, group in enumerate(further(history.config)):
        for name in step.scheduled:
            request, tables = history.live.get(name), (step.group_blocks or {}).get(name, ())
            if request is None or number >= len(tables) or name in (step.finished or {}):
                continue
            hit = 0 if request.started else history.hit_now(step, request)
            if hit is not None:
                first = first_block_read(history.config, group, request.computed + hit)
                yield request, number, tables[number], first


def kept_out_of_the_window(history: VllmRun, step: Step) -> str | None:
    """A request that computes has given back the blocks that slid out of its window (V1-R51)."""
    for request, number, table, first in blocks_read(history, step):
        if keeps_few(history, number):
            continue  # V1-R58
        first = first_read_in_flight(history, request, number, first)
        for place, block in enumerate(table[:first]):
            if block != NULL_BLOCK:
                return (
                    f"{request.id} computes token {request.computed}, and holds block {block} at "
                    f"place {place} of group {number + 1}, which reads from block {first} on"
                )
    return None


def first_read_in_flight(
    history: VllmRun, request: VllmRequestHistory, number: int, first: int
) -> int:
    """Return the first block that the current step or a step in flight reads. The current step
    reads the blocks from `first` on."""
    if not request.begun:
        return first
    return first_block_read(history.config, further(history.config)[number], request.settled)


def something_slides_out(history: VllmRun, step: Step) -> bool:
    return any(
        request.started and first > 0 and not keeps_few(history, number)
        for request, number, _, first in blocks_read(history, step)
    )


def keeps_few(history: VllmRun, number: int) -> bool:
    return is_mamba(history, number) and not leaves_every_state(history.config)


def is_mamba(history: VllmRun, number: int) -> bool:
    return further(history.config)[number].kind == MAMBA


def lost_in_the_window(history: VllmRun, step: Step) -> str | None:
    """A request holds every block that this step or one in flight reads or writes for it
    (V1-R52)."""
    for request, number, table, first in blocks_read(history, step):
        least, most = _places(history, step, request, number)
        if not least <= len(table) <= most:
            needed = least if len(table) < least else most
            return f"{request.id} has {len(table)} blocks in group {number + 1}, but needs {needed}"
        used = [*range(first_read_in_flight(history, request, number, first), len(table))]
        if is_mamba(history, number) and (drafts := speculation.drafts(history.config)):
            used = used[-1 - drafts :]  # where the step leaves its states
        elif keeps_few(history, number):
            reads = (computed_before(history, step, request), *request.begun)
            used = [*(last_place(history.config, read) for read in reads if read), *used[-1:]]
        for place in used:
            if table[place] != NULL_BLOCK:
                continue
            return (
                f"{request.id} reads or writes block {place} of group {number + 1}, which it does "
                "not hold"
            )
    return None


def _places(
    history: VllmRun, step: Step, request: VllmRequestHistory, number: int
) -> tuple[int, int]:
    """Return the smallest and the largest length, in blocks, of a request's table in a group after
    the first.

    Both follow from the number of its blocks in full attention. The last of those blocks has at
    least one token, which may belong to a drafter's lookahead. A Mamba group also has a place for
    each draft.
    """
    drafts = speculation.drafts(history.config) if is_mamba(history, number) else 0
    if is_mamba(history, number) and not caches(history.config):
        return 1 + drafts, 1 + drafts
    block, group = int(history.config["block_size"]), further(history.config)[number]
    first = len((step.blocks or {}).get(request.id, ()))
    least = (first - 1) * block + 1 - speculation.lookahead(history.config) * bool(drafts)
    return group.blocks_for(least) + drafts, group.blocks_for(first * block) + drafts


def window_slides(history: VllmRun, step: Step) -> bool:
    return any(0 < first < len(table) for _, _, table, first in blocks_read(history, step))


def hit_inside_a_block(history: VllmRun, step: Step) -> str | None:
    """A hit ends at the end of a block in every group (V1-R86)."""
    for request in _with_hit(history, step):
        hit = history.hit_now(step, request) or 0
        for number, group in enumerate(further(history.config)):
            size = min(group.size, match_unit(history.config))
            if hit % size and group.kind != BUFFER:
                return (
                    f"{request.id} finds {hit} tokens, which end inside a block of group "
                    f"{number + 1} ({group.size} tokens)"
                )
    return None


def hit_beside_other_sizes(history: VllmRun, step: Step) -> bool:
    size = int(history.config["block_size"])
    differ = any(group.size != size for group in further(history.config))
    return differ and bool(_with_hit(history, step))


def _with_hit(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    if not further(history.config):
        return []
    return [request for request in not_loaded(history, step) if history.hit_now(step, request)]


def not_loaded(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that start in this step without a load. All tokens that they skip are
    cached."""
    return [request for request in admitted(history, step) if not request.tokens_loading]


def hit_not_whole(history: VllmRun, step: Step) -> str | None:
    """In each group, the blocks of a hit that the group reads contain the request's own tokens
    (V1-R53)."""
    known = groups_after(history, step)
    for request, number, table, first in _hits(history, step):
        hit = history.hit_now(step, request) or 0
        group = further(history.config)[number]
        for place in range(first, group.full_blocks(hit)):
            block = table[place] if place < len(table) else NULL_BLOCK
            if block != NULL_BLOCK and is_mamba(history, number):
                continue  # V1-R57
            content = number, content_until(group, request, place)
            if block == NULL_BLOCK:
                return (
                    f"{request.id} finds {hit} tokens, but group {number + 1} does not have "
                    f"block {place}"
                )
            if known.holds.get(block) != content and content not in known.unseen:
                return (
                    f"{request.id} finds {hit} tokens, but block {block} of group {number + 1} "
                    f"does not hold the tokens of its block {place}"
                )
    return None


def _hits(
    history: VllmRun, step: Step
) -> Iterator[tuple[VllmRequestHistory, int, tuple[int, ...], int]]:
    joins = {request.id for request in _with_hit(history, step)}
    for request, number, table, first in blocks_read(history, step):
        if request.id in joins:
            yield request, number, table, first


def hit_out_of_the_window(history: VllmRun, step: Step) -> bool:
    return caches(history.config) and any(first > 0 for *_, first in _hits(history, step))


def admitted_without_room(history: VllmRun, step: Step) -> str | None:
    """The blocks that a request needs for its admission are free (V1-R54).

    Without reserve_full_isl, these are the blocks of its first chunk in every group. With it, they
    are the blocks of all its tokens, but in a group with a window, only as many as the group ever
    holds at once.
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
    tables, runs = held_after(history, step), [request.id for request in kept(history, step)]
    if not tables.keys() >= set(runs):
        return
    # Before a request is admitted, running requests have given back blocks and taken others.
    held = {block for name in runs for block in tables[name]}
    for request in admitted(history, step):
        hit = history.hit_now(step, request)
        if hit is None or request.id not in tables or request.tokens_loading:
            return
        cached, end = hit // size, hit + step.scheduled[request.id]
        ahead = speculation.slots(history.config, end)
        ends = [end if group.kind == MAMBA else ahead for group in beside]
        others = (
            new_blocks(history.config, group, group.blocks_for(end), group.full_blocks(hit))
            for group, end in zip(beside, ends, strict=True)
        )
        needed = blocks_for(history, ahead) - cached + sum(others)
        if history.config["reserve_full_isl"]:
            whole = blocks_for(history, request.num_tokens)
            others = (reserved(history, group, request.num_tokens, hit) for group in beside)
            needed = max(needed, whole - cached + sum(others))
        own = [(step.blocks or {})[request.id], *(step.group_blocks or {}).get(request.id, ())]
        hits = (cached, *(group.full_blocks(hit) for group in beside))
        needed += sum(
            block != NULL_BLOCK and block not in held
            for table, blocks in zip(own, hits, strict=False)
            for block in table[:blocks]
        )
        yield request, needed, int(history.config["num_blocks"]) - len(held)
        held |= set(tables[request.id])


def reserved(history: VllmRun, group: Group, tokens: int, hit: int) -> int:
    """Return how many blocks an admission reserves in a group for a request of `tokens` tokens, of
    which `hit` are cached."""
    whole = group.blocks_for(tokens)
    places = whole if group.kind == MAMBA else at_most(history.config, group, tokens)
    return new_blocks(history.config, group, places, group.full_blocks(hit))


def a_window_saves_room(history: VllmRun, step: Step) -> bool:
    if not history.config["reserve_full_isl"]:
        return False
    return any(
        at_most(history.config, group, request.num_tokens) * group.size < request.num_tokens
        for group in further(history.config)
        for request in waited_before(history)
    )


def held_twice(history: VllmRun, step: Step) -> str | None:
    """A block belongs to only one group, and has the same index in every table that lists it
    (V1-R55)."""
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


def hit_of_groups_missed(history: VllmRun, step: Step) -> str | None:
    """If a running request has the same tokens and holds them in every group, a starting request
    finds them all (V1-R96)."""
    return hit_too_short(
        history,
        step,
        not_loaded(history, step),
        lambda request: held_of(history, step)[request.id],
    )


def groups_hold_something(history: VllmRun, step: Step) -> bool:
    return any(held_of(history, step).values())


@once
def held_of(history: VllmRun, step: Step) -> dict[str, int]:
    """Map each starting request to the number of tokens that it must find.

    A hit may end only at certain places. A place counts if a running request still has, in each
    group, all blocks that are read there. The tokens that must be found end at the last such place.
    With a drafter that reads ahead, the two requests must share the tokens up to the next such
    place. Blocks of a decision that has not completed do not count, since they might not be
    published yet.
    """
    return {
        request.id: held_by_running(history, step, request) for request in admitted(history, step)
    }


def held_by_running(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return the number of tokens that a request must find if it starts in this step."""
    config, shared = history.config, 0
    if not caches(config) or keeps_few_blocks(config):
        return 0
    unit = hit_unit(config)
    beyond = unit * speculation.read_ahead(config)
    ahead = in_flight.depth(config) > 1
    leaving = {*(step.finished or ()), *history.aborts_inside} if ahead else ()
    for other in kept(history, step):
        if other.id in leaving or request.partition != other.partition:
            continue
        common = min(in_common(request, other), other.prompt, other.settled)
        most = (min(common, request.num_tokens - 1) - beyond) // unit * unit
        ends = range(most, shared, -unit)
        shared = next(
            (end for end in ends if _holds_hit(history, step, other, end, beyond)), shared
        )
    return shared


def _holds_hit(
    history: VllmRun, step: Step, other: VllmRequestHistory, end: int, beyond: int
) -> bool:
    """Return whether a request has the blocks that a hit of `end` tokens reads in each group after
    the first, and one more block if the drafter reads ahead."""
    tables, known = (step.group_blocks or {}).get(other.id, ()), state_of(history).groups
    if len(tables) < len(further(history.config)):
        return False
    for number, group in enumerate(further(history.config)):
        reads_on = group.size if beyond and group.kind != MAMBA else 0
        first = first_block_read(history.config, group, end)
        for place in range(first, group.full_blocks(end + reads_on)):
            held = tables[number][place] if place < len(tables[number]) else NULL_BLOCK
            if known.holds.get(held) != (number, content_until(group, other, place)):
                return False
    return True


def crosses_a_boundary(history: VllmRun, step: Step) -> str | None:
    """A chunk of a prefill ends at a block boundary, or where the prefill ends (V1-R56)."""
    size = int(history.config["block_size"])
    for request, start, end in chunks(history, step):
        before_end = history.revision in since("0.33")
        last = mamba.last_boundary(history.config, request, before_end=before_end)
        goes_on = end < mamba.prefill_end(request)
        fits = end // size * size > start or not mamba.exceeds_chunks(history.config)
        tail = mamba.tail(history.config, request, last)
        if end % size and goes_on and fits and end != tail:
            return f"{request.id} computes tokens {start} to {end - 1}, and stops inside a block"
        begun = -(-start // size) * size
        passed = [stop for stop in (last, begun, tail) if start < stop < end]
        if passed:
            stop = min(passed)
            return f"{request.id} computes tokens {start} to {end - 1}, past the boundary at {stop}"
    return None


def chunks(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, int, int]]:
    """Yield each request that computes its prefill, with the start and the end of its chunk."""
    if not aligns(history.config):
        return
    for name, tokens in step.scheduled.items():
        request = history.live.get(name)
        if request is None:
            continue
        hit = 0 if request.started else history.hit_now(step, request)
        if hit is not None and request.computed + hit < mamba.prefill_end(request):
            yield request, request.computed + hit, request.computed + hit + tokens


def a_prefill_goes_on(history: VllmRun, step: Step) -> bool:
    return any(end < mamba.prefill_end(request) for request, _, end in chunks(history, step))


def computed_before(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    return request.computed + (0 if request.started else history.hit_now(step, request) or 0)


def states(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, int, int, int]]:
    """Yield each Mamba state that a request reads in the step: the request, the number of the
    group, the block, and the tokens before the state.

    If drafts were computed, the request may read the state after any of them, in whichever block
    the worker has left it. A prefill has no drafts.
    """
    drafts = speculation.drafts(history.config)
    for request, number, table, first in blocks_read(history, step):
        read = computed_before(history, step, request)
        if request.started and drafts and read >= mamba.prefill_end(request):
            continue
        if is_mamba(history, number) and read and first < len(table):
            copies = step.sent.copies if step.sent is not None else ()
            copied = {copy: block for block, copy in copies} if not request.started else {}
            yield request, number, copied.get(table[first], table[first]), read


def wrong_state(history: VllmRun, step: Step) -> str | None:
    """A request reads the state that a step left after exactly the same tokens (V1-R57)."""
    known = state_of(history).groups
    for request, number, block, read in states(history, step):
        state = number, content_of(request, read)
        if known.holds.get(block) != state and state not in known.unseen:
            return (
                f"{request.id} continues after {read} tokens, but block {block} of group "
                f"{number + 1} holds {_state(history, request, block)}"
            )
    return None


def _state(history: VllmRun, request: VllmRequestHistory, block: int) -> str:
    _, content = state_of(history).groups.holds.get(block, (0, ()))
    if not content:
        return "no state"
    tokens = sum(length for _, length in content)
    is_own = content == content_of(request, tokens)
    whose = f"tokens of {request.id}" if is_own else "other tokens"
    return f"the state after {tokens} {whose}"


def a_state_is_found(history: VllmRun, step: Step) -> bool:
    return any(not request.started for request, *_ in states(history, step))


def too_many_states(history: VllmRun, step: Step) -> str | None:
    """A request holds only the states that its step and those in flight read or write (V1-R58)."""
    for request, number, table, _ in blocks_read(history, step):
        most = 2 + len(request.begun) if caches(history.config) else 1
        most += speculation.drafts(history.config)
        held = [place for place, block in enumerate(table) if block != NULL_BLOCK]
        if keeps_few(history, number) and len(held) > most:
            return (
                f"{request.id} holds {len(held)} states in group {number + 1} (places "
                f"{', '.join(map(str, held))}), but at most {most} are in use"
            )
    return None


def an_old_state_was_left(history: VllmRun, step: Step) -> bool:
    return any(
        request.started and first > 0 and keeps_few(history, number)
        for request, number, _, first in blocks_read(history, step)
    )


PREDICATES = {
    "V1-R55": Predicate(held_twice, groups_share_the_pool, only_with=are_several),
    "V1-R52": Predicate(lost_in_the_window, window_slides, only_with=are_several),
    "V1-R51": Predicate(kept_out_of_the_window, something_slides_out, only_with=are_several),
    "V1-R86": Predicate(hit_inside_a_block, hit_beside_other_sizes, only_with=are_several),
    "V1-R53": Predicate(hit_not_whole, hit_out_of_the_window, only_with=are_several),
    "V1-R96": Predicate(hit_of_groups_missed, groups_hold_something, only_with=are_several),
    "V1-R54": Predicate(admitted_without_room, a_window_saves_room, only_with=are_several),
    "V1-R56": Predicate(crosses_a_boundary, a_prefill_goes_on, only_with=has_mamba),
    "V1-R57": Predicate(wrong_state, a_state_is_found, only_with=has_mamba),
    "V1-R58": Predicate(too_many_states, an_old_state_was_left, only_with=has_mamba),
}
