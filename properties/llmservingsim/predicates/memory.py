"""What a request finds of the pool when it starts.

Source: target protocol, fine points, for the page, which only says that memory has limits;
kv_cache_manager.py at HEAD, can_fit_full_sequence, for the code.
"""

from ....model.observation import Step
from ...rules.pool import blocks_for
from ...rules.predicate import Predicate
from ...vllm.history.run import VllmRun
from ...vllm.predicates.decision import admitted
from .decision import must_not_be_cut, promised, waited, whole


def not_promised(history: VllmRun, step: Step) -> str | None:
    """Blocks for its last token are free, and not promised, when a request starts (LSS-P01)."""
    new = admitted(history, step)
    if not new or step.free_blocks is None or history.config["num_blocks"] is None:
        return None
    missing = promised(history, step)
    if missing <= step.free_blocks:
        return None
    return (
        f"{new[-1].id} starts; requests that run may still take {missing} blocks, "
        f"{step.free_blocks} are free"
    )


def prompt_alone_fits(history: VllmRun, step: Step) -> bool:
    """A request waits of which the prompt would fit into free blocks, and not all that it may
    need."""
    waiting, free = waited(history, step), step.free_blocks
    if not waiting or not free or history.config["num_blocks"] is None:
        return False
    one = waiting[0]
    return blocks_for(history, one.prompt) <= free < whole(history, one) + promised(history, step)


def overtaken(history: VllmRun, step: Step) -> str | None:
    """While a request waits for blocks no request that came later starts (LSS-P02)."""
    new = admitted(history, step)
    for one in waited(history, step):
        later = [other for other in new if other.arrival > one.arrival]
        if later and not must_not_be_cut(history, step, one):
            return f"{later[0].id} starts, {one.id} came before it and waits for blocks"
    return None


def waits_for_blocks(history: VllmRun, step: Step) -> bool:
    """A request waits for blocks, and a later one would fit."""
    waiting, free = waited(history, step), step.free_blocks
    if len(waiting) < 2 or not free or history.config["num_blocks"] is None:
        return False
    left = free - promised(history, step)
    return whole(history, waiting[0]) > left >= min(whole(history, one) for one in waiting[1:])


def rest_does_not_fit(history: VllmRun, step: Step) -> str | None:
    """Blocks for all that a request knows are free when it is admitted (LSS-R31)."""
    free = step.free_blocks
    if free is None:
        return None
    for one in reversed(admitted(history, step)):
        hit = history.hit_now(step, one)
        known = blocks_for(history, one.num_tokens)
        if hit is None:
            # Aborted inside the step, so it is not known: at most everything was taken.
            free += known
            continue
        start = hit + step.scheduled[one.id]
        taken = blocks_for(history, start)
        if known - taken > free:
            return (
                f"{one.id} admitted with {start} of {one.num_tokens} tokens: the others need "
                f"{known - taken} blocks, {free} were free"
            )
        # What those admitted after it took, at most, was free before.
        free += taken
    return None


def first_block_alone_fits(history: VllmRun, step: Step) -> bool:
    """A request waits of which a first block would fit, and not all that it knows."""
    waiting, free = waited(history, step), step.free_blocks
    return bool(waiting and free) and blocks_for(history, waiting[0].num_tokens) > (free or 0)


PREDICATES = {
    "LSS-P01": Predicate(not_promised, prompt_alone_fits),
    "LSS-P02": Predicate(overtaken, waits_for_blocks),
    "LSS-R31": Predicate(rest_does_not_fit, first_block_alone_fits),
}
