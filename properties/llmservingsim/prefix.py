"""What a request finds in the prefix cache.

Source: continuous-batching page, "Two scheduling paths"; kv_cache_manager.py at HEAD, which never
takes the last token from the cache.
"""

from ...model.observation import Step
from ..content import in_common, said_by
from ..ledger import Ledger, caches
from ..predicate import Predicate
from ..vllm.blocks import everything_known_elsewhere, hit_too_long
from ..vllm.decision import admitted


def starts_late(ledger: Ledger, step: Step) -> str | None:
    """With caching off every request is computed from its first token (LSS-R03)."""
    if caches(ledger.config):
        return None
    for one in admitted(ledger, step):
        computed = (step.computed or {}).get(one.id, step.scheduled[one.id])
        if computed > step.scheduled[one.id]:
            return (
                f"{one.id} starts with {step.scheduled[one.id]} tokens and has {computed} "
                "computed, although nothing is cached"
            )
    return None


def said_before(ledger: Ledger, step: Step) -> bool:
    """Caching is off, and a request starts that says what another one said before."""
    return not caches(ledger.config) and any(
        in_common(said_by(one), said_by(other)) >= ledger.config["block_size"]
        for one in admitted(ledger, step)
        for other in ledger.accounts.values()
        if other is not one and other.most_computed
    )


PREDICATES = {
    "LSS-R03": Predicate(starts_late, said_before),
    "LSS-R33": Predicate(hit_too_long, everything_known_elsewhere),
}
