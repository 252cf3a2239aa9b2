"""Predicates and strategies for LLMServingSim, by what they speak of."""

from . import budget, memory, prefix, queues, tail

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
    **tail.PREDICATES,
    **prefix.PREDICATES,
}
