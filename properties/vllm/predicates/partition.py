"""Partitions of the prefix cache: salts and adapters.

Source: release 0.33.0: generate_block_hash_extra_keys.
"""

from ....model.observation import Step
from ...rules.common import computed_of, first_hits
from ...rules.predicate import Predicate
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun


def hit_of_another_partition(history: VllmRun, step: Step) -> str | None:
    """A hit covers only what requests with the same salt and adapter have computed (V1-R40)."""
    for request, hit in _starting(history, step):
        known = max(
            computed_of(history, step, request, other)
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
    """The first tokens of a starting request fill a block, and only another partition has computed
    them."""
    block = history.config["block_size"]
    for request, _ in _starting(history, step):
        tokens = {True: 0, False: 0}
        for other in history.requests.values():
            own = other.partition == request.partition
            tokens[own] = max(tokens[own], computed_of(history, step, request, other))
        if tokens[False] // block > tokens[True] // block:
            return True
    return False


def _starting(history: VllmRun, step: Step) -> list[tuple[VllmRequestHistory, int]]:
    return first_hits(history, step) if history.config.get("cache_partitions") else []


PREDICATES = {"V1-R40": Predicate(hit_of_another_partition, could_hit_another_partition)}
