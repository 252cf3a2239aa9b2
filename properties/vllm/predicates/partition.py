"""Partitions of the prefix cache: salts and adapters.

Source: release 0.33.0: generate_block_hash_extra_keys.
"""

from ....model.observation import Step
from ...history.content import in_common
from ...rules.common import first_hits
from ...rules.predicate import Predicate
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun


def hit_of_another_partition(history: VllmRun, step: Step) -> str | None:
    """A hit covers only what requests with the same salt and adapter have computed (V1-R40)."""
    for request, hit in _starting(history, step):
        known = max(
            _computed(history, step, request, other)
            for other in history.requests.values()
            if other.partition == request.partition
        )
        if hit > known:
            adapter, salt = request.partition
            return (
                f"{request.id} takes {hit} tokens from the cache, of which {known} were computed "
                f"with its adapter ({adapter or 'none'}) and its salt ({salt or 'none'})"
            )
    return None


def could_hit_another_partition(history: VllmRun, step: Step) -> bool:
    """A request starts with a full block of tokens that only another partition has computed."""
    block = history.config["block_size"]
    for request, _ in _starting(history, step):
        tokens = {True: 0, False: 0}
        for other in history.requests.values():
            own = other.partition == request.partition
            tokens[own] = max(tokens[own], _computed(history, step, request, other))
        if tokens[False] // block > tokens[True] // block:
            return True
    return False


def _starting(history: VllmRun, step: Step) -> list[tuple[VllmRequestHistory, int]]:
    if not history.config.get("cache_partitions"):
        return []
    return [(history.requests[name], hit) for name, hit in first_hits(history, step).items()]


def _computed(
    history: VllmRun, step: Step, request: VllmRequestHistory, other: VllmRequestHistory
) -> int:
    """Return how many leading tokens of a request the other one has computed by this step."""
    computed = other.max_computed if other is request else history.reached(step, other)
    return min(in_common(request, other), computed) if computed else 0


PREDICATES = {"V1-R40": Predicate(hit_of_another_partition, could_hit_another_partition)}
