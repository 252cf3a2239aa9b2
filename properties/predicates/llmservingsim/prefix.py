"""What a request finds in the prefix cache: what vLLM's rules ask.

Source: continuous-batching page, "Two scheduling paths"; kv_cache_manager.py at HEAD, which never
takes the last token from the cache.
"""

from ....model.observation import Step
from ...history.content import common_prefix_len, known_tokens
from ...history.run_history import RunHistory, caches
from ..predicate import Predicate
from ..vllm.blocks import everything_known_elsewhere, hit_missed, hit_too_long, shares_with_running
from ..vllm.decision import admitted


def starts_late(history: RunHistory, step: Step) -> str | None:
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


def said_before(history: RunHistory, step: Step) -> bool:
    """Caching is off, and a request starts that says what another one said before."""
    return not caches(history.config) and any(
        common_prefix_len(known_tokens(one), known_tokens(other)) >= history.config["block_size"]
        for one in admitted(history, step)
        for other in history.requests.values()
        if other is not one and other.max_computed
    )


PREDICATES = {
    "LSS-R03": Predicate(starts_late, said_before),
    "LSS-R02": Predicate(hit_missed, shares_with_running),
    "LSS-R33": Predicate(hit_too_long, everything_known_elsewhere),
}
