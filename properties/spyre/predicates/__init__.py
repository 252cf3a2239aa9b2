"""Predicates of Spyre, one file per topic."""

from ...rules.predicate import default_is
from . import admission, decode, prefill, prefix, priority, volume

PREDICATES = {
    **priority.PREDICATES,
    **prefill.PREDICATES,
    **prefix.PREDICATES,
    **admission.PREDICATES,
    **volume.PREDICATES,
    **decode.PREDICATES,
    "SPY-R33": default_is("interleave", True),
}
