"""Predicates of Spyre, one file per topic."""

from . import admission, decode, pausing, prefill, prefix, priority

PREDICATES = {
    **priority.PREDICATES,
    **prefill.PREDICATES,
    **prefix.PREDICATES,
    **admission.PREDICATES,
    **decode.PREDICATES,
    **pausing.PREDICATES,
}
