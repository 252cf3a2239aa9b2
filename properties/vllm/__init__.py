"""Predicates and strategies for vLLM V1, by what they speak of."""

from . import admission, blocks, budget, preemption, queues

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **preemption.PREDICATES,
    **blocks.PREDICATES,
    **admission.PREDICATES,
}
