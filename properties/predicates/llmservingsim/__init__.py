"""Predicates of LLMServingSim, one file per topic."""

from . import budget, memory, prefix, queues, tail

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
    **tail.PREDICATES,
    **prefix.PREDICATES,
}
