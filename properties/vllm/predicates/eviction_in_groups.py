"""The order of eviction among the blocks that a request has given back in several KV groups.

Source: release 0.33.0: KVCacheCoordinator.free, BlockPool.free_blocks.
"""

from ....model.observation import Step
from ...history.per_step_cache import once
from ...rules.predicate import Predicate
from ..history import given_back, given_back_in_groups
from ..history.kept_in_groups import handed_out
from ..history.run import Returned, VllmRun, state_of
from .eviction import hit_is_known


def later_group_is_evicted_first(history: VllmRun, step: Step) -> str | None:
    """A request's blocks of an earlier group are handed out before those of a later group that can
    be found (V1-R90)."""
    known = state_of(history).returned
    taken = _taken(history, step)
    left = known.keys() - given_back.held_after(step) if taken else ()
    for block in taken:
        name, since, group, _ = known[block]
        for other in sorted(left):
            if known[other][:2] == (name, since) and known[other].group < group:
                return (
                    f"block {block} is handed out, which {name} gave back in group {group} and "
                    f"which can be found, but block {other}, which {name} gave back in group "
                    f"{known[other].group}, is still free"
                )
    return None


def later_group_is_evicted(history: VllmRun, step: Step) -> bool:
    """Return whether the step hands out a block that could be found, from a group after the
    first."""
    return bool(_taken(history, step))


@once
def _taken(history: VllmRun, step: Step) -> list[int]:
    """Return the blocks of groups after the first that could be found and that this step hands out.
    Leave out requests whose hit is unknown."""
    known = state_of(history).returned
    if not known or step.blocks is None or given_back.is_unsure(history, step):
        return []
    received: set[int] = set()
    for name, blocks in handed_out(history, step):
        received |= blocks if hit_is_known(history, step, name) else set()
    return sorted(block for block in received & known.keys() if _was_found(known[block]))


def _was_found(returned: Returned) -> bool:
    return returned.group > 0 and returned.can_be_found


PREDICATES = {
    "V1-R90": Predicate(
        later_group_is_evicted_first,
        later_group_is_evicted,
        only_with=given_back_in_groups.are_followed,
    ),
}
