"""What keeps a waiting request out although blocks are free: the watermark, the whole sequence.

Source: chunked-prefill chapter, "Admission control".
"""

from ....model.observation import Step
from ...history.run_history import RunHistory
from ..predicate import Predicate
from .decision import admitted, blocks_for, kept, waited_before, watermark_blocks


def reserve_given_away(history: RunHistory, step: Step) -> str | None:
    """A request that is admitted while a request runs leaves the watermark's blocks free
    (V1CP-R19)."""
    new, reserve = admitted(history, step), watermark_blocks(history)
    guarded = new if kept(history, step) else new[1:]
    # Later in the step blocks only come back.
    if not guarded or step.free_blocks is None or step.free_blocks >= reserve:
        return None
    return f"{guarded[-1].id} admitted, {step.free_blocks} blocks left free, watermark is {reserve}"


def reserve_matters(history: RunHistory, step: Step) -> bool:
    """A request waits while a request runs, and some blocks are free, but no more than the
    watermark and what it needs."""
    waiting = [one for one in waited_before(history) if one.id not in step.scheduled]
    reserve, free = watermark_blocks(history), step.free_blocks
    if not waiting or not reserve or not free or not kept(history, step):
        return False
    return free < blocks_for(history, waiting[0].num_tokens) + reserve


def rest_does_not_fit(history: RunHistory, step: Step) -> str | None:
    """With reserve_full_isl, blocks for all known tokens of a request are free when it is
    admitted, not only for its first chunk (V1CP-R22)."""
    if not history.config["reserve_full_isl"] or step.free_blocks is None:
        return None
    free = step.free_blocks
    for one in reversed(admitted(history, step)):
        hit = history.hit_now(step, one)
        if hit is None:
            # Aborted inside the step, so it is not known: at most everything was taken.
            free += blocks_for(history, one.num_tokens)
            continue
        start = hit + step.scheduled[one.id]
        rest = blocks_for(history, one.num_tokens) - blocks_for(history, start)
        if rest > free:
            return (
                f"{one.id} admitted with {start} of {one.num_tokens} tokens: the others need "
                f"{rest} blocks, {free} were free"
            )
        # What those admitted after it took, at most, was free before.
        free += blocks_for(history, start)
    return None


def first_chunk_alone_fits(history: RunHistory, step: Step) -> bool:
    """A request waits of which a first block would fit, and not all that it knows."""
    waiting = [one for one in waited_before(history) if one.id not in step.scheduled]
    free = step.free_blocks
    if not waiting or not free or not history.config["reserve_full_isl"]:
        return False
    return blocks_for(history, waiting[0].num_tokens) > free


PREDICATES = {
    "V1CP-R19": Predicate(reserve_given_away, reserve_matters),
    "V1CP-R22": Predicate(rest_does_not_fit, first_chunk_alone_fits),
}
