"""Predicates of vLLM V1, one file per topic."""

from . import admission, blocks, budget, preemption, queues

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **preemption.PREDICATES,
    **blocks.PREDICATES,
    **admission.PREDICATES,
}
