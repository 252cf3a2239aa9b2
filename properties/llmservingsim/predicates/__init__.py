"""Predicates of LLMServingSim, one file per topic."""

from . import budget, memory, prefix, queues, tail, throughput

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
    **tail.PREDICATES,
    **prefix.PREDICATES,
    **throughput.PREDICATES,
}
