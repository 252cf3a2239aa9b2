"""Hits in several groups of the KV cache on blocks that no request holds any more.

Source: release 0.33.0, HybridKVCacheCoordinator.find_longest_cache_hit.
"""

from collections.abc import Mapping
from typing import Any

from ....model.observation import Step
from ...history.per_step_cache import once
from ...rules.predicate import Predicate
from ..history import kept_in_groups, speculation
from ..history.groups import MAMBA, aligns, first_block_read, hit_unit, keeps_few_blocks
from ..history.kept_in_groups import Contents
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun, state_of
from .groups import not_loaded


def hit_on_kept_missed(history: VllmRun, step: Step) -> str | None:
    """A starting request finds every token whose blocks are still in the pool, in every group
    (V1-R93)."""
    for request in not_loaded(history, step):
        hit, kept = history.hit_now(step, request), must_find(history, step)[request.id]
        if hit is not None and hit < kept:
            return (
                f"{request.id} finds {hit} tokens in the cache, but {kept} were computed before, "
                "and every group still has their blocks"
            )
    return None


def every_block_is_kept(config: Mapping[str, Any]) -> bool:
    return kept_in_groups.are_followed(config) and not keeps_few_blocks(config)


def something_is_kept(history: VllmRun, step: Step) -> bool:
    return any(must_find(history, step).values())


@once
def must_find(history: VllmRun, step: Step) -> dict[str, int]:
    """Map each starting request to the number of tokens that it must find.

    A hit may end only at certain places. A place counts if the pool still has, in each group, all
    blocks that are read there. The tokens that must be found end at the last such place. With a
    drafter that reads ahead, the pool must have the tokens up to the next such place as well.
    """
    return {request.id: kept_for(history, step, request) for request in not_loaded(history, step)}


def kept_for(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return the number of tokens that a request must find if it starts in this step."""
    kept = state_of(history).kept
    if not kept:
        return 0
    unit = hit_unit(history.config)
    beyond = unit * speculation.read_ahead(history.config)
    lost = kept_in_groups.lost_in(history, step, kept, but=request.id)
    known = {content for content in kept.values() if content not in lost}
    most = request.num_tokens - 1
    if not kept_in_groups.keep_output(history):
        most = min(most, request.prompt)
    most = (most - beyond) // unit * unit
    ends = range(most, 0, -unit)
    return next((end for end in ends if _is_kept(history, known, request, end, beyond)), 0)


def _is_kept(
    history: VllmRun,
    known: Contents,
    request: VllmRequestHistory,
    end: int,
    beyond: int,
) -> bool:
    """Return whether a hit of `end` tokens is possible: for each group, the pool has the blocks
    that the hit reads, and one more block if the drafter reads ahead."""
    for number, group in enumerate(kept_in_groups.every_group(history.config)):
        reads_on = group.size if beyond and group.kind != MAMBA else 0
        first = first_block_read(history.config, group, end)
        for place in range(first, group.full_blocks(end + reads_on)):
            if (number, kept_in_groups.content_until(group, request, place)) not in known:
                return False
    return True


def runs_past_junction(history: VllmRun, step: Step) -> str | None:
    """The first chunk of a request does not extend past the tokens that full attention has cached
    (V1-R69)."""
    for request, start, junction in _junctions(history, step):
        if junction < (end := start + step.scheduled[request.id]):
            return (
                f"{request.id} computes tokens {start} to {end - 1} in one chunk, but leaves no "
                f"state after token {junction - 1}, up to which full attention has cached its "
                "tokens"
            )
    return None


def a_state_is_missing(history: VllmRun, step: Step) -> bool:
    return bool(_junctions(history, step))


@once
def _junctions(history: VllmRun, step: Step) -> list[tuple[VllmRequestHistory, int, int]]:
    """Return the starting requests for which full attention has cached more tokens than the hit
    covers, each with the length of its hit and the number of cached tokens. Leave out requests for
    which full attention may have cached even more than the client knows."""
    kept, known = state_of(history).kept, []
    [attention, *_] = kept_in_groups.every_group(history.config)
    for request in not_loaded(history, step) if kept else ():
        start = history.hit_now(step, request)
        most = min(request.num_tokens - 1, history.max_hit(step, request)) // attention.size
        if start is None or most * attention.size <= start:
            continue
        lost = kept_in_groups.lost_in(history, step, kept, but=request.id)
        sure = {content for content in kept.values() if content not in lost}
        contents = (kept_in_groups.content_until(attention, request, n) for n in range(most))
        if all((0, content) in sure for content in contents):
            known.append((request, start, most * attention.size))
    return known


def states_are_aligned(config: Mapping[str, Any]) -> bool:
    followed = kept_in_groups.are_followed(config) and not speculation.read_ahead(config)
    return followed and aligns(config)


PREDICATES = {
    "V1-R69": Predicate(runs_past_junction, a_state_is_missing, only_with=states_are_aligned),
    "V1-R93": Predicate(hit_on_kept_missed, something_is_kept, only_with=every_block_is_kept),
}
