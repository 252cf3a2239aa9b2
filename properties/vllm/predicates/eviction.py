"""The order of eviction among the blocks that a request has given back.

Source: release 0.33.0: KVCacheManager.free, its docstring.
"""

from collections import Counter

from ....model.observation import Step
from ...history.per_step_cache import once
from ...rules.predicate import Predicate
from ..history import given_back
from ..history.kept_in_groups import handed_out
from ..history.run import VllmRun, state_of


def start_is_evicted_first(history: VllmRun, step: Step) -> str | None:
    """The last of the blocks that a request has given back is handed out first (V1CP-R40)."""
    known = state_of(history).given_back
    left = known.keys() - given_back.held_after(step) if _taken(history, step) else ()
    for taken in _taken(history, step):
        name, since, place = known[taken]
        for block in left:
            if known[block][:2] == (name, since) and known[block][2] > place:
                return (
                    f"block {taken} is handed out, the block with index {place} of {name}, but "
                    f"block {block}, with index {known[block][2]}, is still free"
                )
    return None


def block_is_evicted(history: VllmRun, step: Step) -> bool:
    """Return whether the step hands out a block of a request that gave back several."""
    known, taken = state_of(history).given_back, _taken(history, step)
    if not taken:
        return False
    owners = Counter((name, since) for name, since, _ in known.values())
    return any(owners[known[block][:2]] > 1 for block in taken)


@once
def _taken(history: VllmRun, step: Step) -> list[int]:
    """Return the blocks that requests had given back and that this step hands out, except those of
    a prefix hit. Leave out requests whose hit is unknown."""
    known = state_of(history).given_back
    if not known or step.blocks is None or given_back.is_unsure(history, step):
        return []
    received = (b for name, b in handed_out(history, step) if hit_is_known(history, step, name))
    return sorted(block for blocks in received for block in blocks if block in known)


def hit_is_known(history: VllmRun, step: Step, name: str) -> bool:
    """Return whether a client can tell which blocks of a request are hits. It cannot if the
    request's load begins in this step."""
    request = history.live.get(name)
    if request is None or request.started:
        return True
    return name in step.scheduled and history.hit_now(step, request) is not None


PREDICATES = {
    "V1CP-R40": Predicate(
        start_is_evicted_first, block_is_evicted, only_with=given_back.are_followed
    ),
}
