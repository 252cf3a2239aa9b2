"""Predicates and strategies for Spyre, by what they speak of."""

from . import admission, decode, pausing, prefill, prefix, priority

PREDICATES = {
    **priority.PREDICATES,
    **prefill.PREDICATES,
    **prefix.PREDICATES,
    **admission.PREDICATES,
    **decode.PREDICATES,
    **pausing.PREDICATES,
}
