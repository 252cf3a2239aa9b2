"""Predicates and strategies for Spyre: `priority`, `prefill`, `decode`, `strategies`."""

from . import decode, prefill, priority

PREDICATES = {**priority.PREDICATES, **prefill.PREDICATES, **decode.PREDICATES}
