"""Predicates of LLMServingSim, one file per topic."""

from . import budget, memory, queues, tail, throughput

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
    **tail.PREDICATES,
    **throughput.PREDICATES,
}
