"""The pool at the start of a request: free blocks and prefix hits.

Sources: for revision `documented`, "Fine points" of the target protocol, because the documentation
page only says that memory is limited; for HEAD, can_fit_full_sequence in kv_cache_manager.py.
"""

from ....model.observation import Step
from ...history.content import in_common, surely_shared
from ...history.prefix_hits import caches
from ...rules.pool import blocks_for, hit_too_short, must_be_found_again
from ...rules.predicate import Predicate
from ...vllm.history.request_history import VllmRequestHistory
from ...vllm.history.run import VllmRun
from ...vllm.predicates.blocks import everything_known_elsewhere, hit_too_long
from ...vllm.predicates.decision import admitted, kept
from .budget import PAGE, blocks_in_all, is_blocked_in_flight, left_waiting, promised


def starts_late(history: VllmRun, step: Step) -> str | None:
    """Check that, with caching off, every request is computed from its first token (LSS-R03)."""
    if caches(history.config):
        return None
    for request in admitted(history, step):
        computed = (step.computed or {}).get(request.id, step.scheduled[request.id])
        if computed > step.scheduled[request.id]:
            return (
                f"{request.id} starts with {step.scheduled[request.id]} tokens and has {computed} "
                "computed, although nothing is cached"
            )
    return None


def starts_like_another(history: VllmRun, step: Step) -> bool:
    return not caches(history.config) and any(
        in_common(request, other) >= history.config["block_size"]
        for request in admitted(history, step)
        for other in history.kin(request)
        if other is not request and other.max_computed
    )


def hit_missed(history: VllmRun, step: Step) -> str | None:
    """Check that, with caching on, a starting request does not compute the blocks that it shares
    with a running one (LSS-R02)."""
    return hit_too_short(
        history, step, admitted(history, step), lambda request: hit_at_least(history, step, request)
    )


def shares_with_running(history: VllmRun, step: Step) -> bool:
    """Return whether a starting request shares a full block with a running request."""
    return any(hit_at_least(history, step, request) for request in admitted(history, step))


def hit_at_least(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many tokens a starting request must find in the cache. All of them are in blocks
    that other requests hold.

    According to the documentation page, a batch in flight may publish its blocks only when it
    completes.
    """
    if not caches(history.config):
        return 0
    block, holders = history.config["block_size"], kept(history, step)
    if history.revision == PAGE:
        holders = [other for other in holders if not is_blocked_in_flight(history, other)]
    return surely_shared(request, holders, history.kin(request), block, of_prompts=True)


def not_promised(history: VllmRun, step: Step) -> str | None:
    """Check that enough blocks for all tokens of a starting request are free and not promised to
    others (LSS-P01)."""
    new = admitted(history, step)
    if not new or step.free_blocks is None or history.config["num_blocks"] is None:
        return None
    missing = promised(history, step)
    if missing <= step.free_blocks:
        return None
    return (
        f"{new[-1].id} starts; running requests may still take {missing} blocks, "
        f"but {step.free_blocks} are free"
    )


def prompt_alone_fits(history: VllmRun, step: Step) -> bool:
    """Return whether the free blocks are enough for the prompt of a waiting request, but not for
    all its tokens."""
    waiting, free = left_waiting(history, step), step.free_blocks
    if not waiting or not free or history.config["num_blocks"] is None:
        return False
    request = waiting[0]
    return (
        blocks_for(history, request.prompt)
        <= free
        < blocks_in_all(history, request) + promised(history, step)
    )


def rest_does_not_fit(history: VllmRun, step: Step) -> str | None:
    """Check that, when a request is admitted, blocks for all its known tokens are free
    (LSS-R31)."""
    free = step.free_blocks
    if free is None:
        return None
    for request in reversed(admitted(history, step)):
        hit = history.hit_now(step, request)
        known = blocks_for(history, request.num_tokens)
        if hit is None:
            # It was aborted inside the step, so its hit is unknown. At most, it took free blocks
            # for all its tokens.
            free += known
            continue
        start = hit + step.scheduled[request.id]
        taken = blocks_for(history, start)
        if known - taken > free:
            return (
                f"{request.id} admitted with {start} of {request.num_tokens} tokens, but the rest "
                f"needs {known - taken} blocks (free: {free})"
            )
        # When it was admitted, the blocks that later requests took were still free.
        free += taken
    return None


def first_block_alone_fits(history: VllmRun, step: Step) -> bool:
    waiting, free = left_waiting(history, step), step.free_blocks
    return bool(waiting and free) and blocks_for(history, waiting[0].num_tokens) > (free or 0)


PREDICATES = {
    "LSS-R03": Predicate(starts_late, starts_like_another),
    "LSS-R02": Predicate(hit_missed, shares_with_running),
    "LSS-R35": must_be_found_again(admitted),
    "LSS-R33": Predicate(hit_too_long, everything_known_elsewhere),
    "LSS-P01": Predicate(not_promised, prompt_alone_fits),
    "LSS-R31": Predicate(rest_does_not_fit, first_block_alone_fits),
}
