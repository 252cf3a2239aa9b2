"""What a request finds in the prefix cache.

Source: continuous-batching page, "Two scheduling paths"; kv_cache_manager.py at HEAD, which never
takes the last token from the cache.
"""

from ....model.observation import Step
from ...history.content import in_common, surely_found
from ...history.prefix_hits import caches
from ...rules.cached import hit_too_short
from ...rules.predicate import Predicate
from ...vllm.history.request_history import VllmRequestHistory
from ...vllm.history.run import VllmRun
from ...vllm.predicates.blocks import everything_known_elsewhere, hit_too_long
from ...vllm.predicates.decision import admitted, kept


def starts_late(history: VllmRun, step: Step) -> str | None:
    """With caching off every request is computed from its first token (LSS-R03)."""
    if caches(history.config):
        return None
    for one in admitted(history, step):
        computed = (step.computed or {}).get(one.id, step.scheduled[one.id])
        if computed > step.scheduled[one.id]:
            return (
                f"{one.id} starts with {step.scheduled[one.id]} tokens and has {computed} "
                "computed, although nothing is cached"
            )
    return None


def said_before(history: VllmRun, step: Step) -> bool:
    """Caching is off, and a request starts that says what another one said before."""
    return not caches(history.config) and any(
        in_common(one, other) >= history.config["block_size"]
        for one in admitted(history, step)
        for other in history.kin(one)
        if other is not one and other.max_computed
    )


def hit_missed(history: VllmRun, step: Step) -> str | None:
    """With caching on a request starts from the full blocks that it shares with one that runs
    (LSS-R02)."""
    return hit_too_short(
        history, step, admitted(history, step), lambda one: hit_at_least(history, step, one)
    )


def shares_with_running(history: VllmRun, step: Step) -> bool:
    """A request starts that shares a full block with one that runs, and with no other."""
    return any(hit_at_least(history, step, one) for one in admitted(history, step))


def hit_at_least(history: VllmRun, step: Step, one: VllmRequestHistory) -> int:
    """Tokens that a request that starts must find in the cache, all in blocks that others hold."""
    if not caches(history.config):
        return 0
    block = history.config["block_size"]
    return surely_found(one, kept(history, step), history.kin(one), block)


PREDICATES = {
    "LSS-R03": Predicate(starts_late, said_before),
    "LSS-R02": Predicate(hit_missed, shares_with_running),
    "LSS-R33": Predicate(hit_too_long, everything_known_elsewhere),
}
