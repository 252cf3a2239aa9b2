"""Predicates of LLMServingSim, one file per topic."""

from . import budget, memory, queues, tail, throughput
from . import memory as prefix

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
    **tail.PREDICATES,
    **throughput.PREDICATES,
}
