"""Predicates of nano-vLLM, one file per topic."""

from . import admission, blocks, decode

PREDICATES = {**admission.PREDICATES, **decode.PREDICATES, **blocks.PREDICATES}
