"""Predicates and strategies for nano-vLLM, by what they speak of."""

from . import admission, blocks, decode, queues

PREDICATES = {
    **admission.PREDICATES,
    **decode.PREDICATES,
    **queues.PREDICATES,
    **blocks.PREDICATES,
}
