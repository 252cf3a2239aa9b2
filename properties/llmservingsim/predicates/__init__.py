"""Predicates of LLMServingSim, one file per topic."""

from . import budget, memory, queues

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
}
