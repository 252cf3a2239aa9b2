"""Predicates of nano-vLLM, one file per topic."""

from . import admission, blocks, decode, queues

PREDICATES = {**admission.PREDICATES, **decode.PREDICATES, **queues.PREDICATES, **blocks.PREDICATES}
