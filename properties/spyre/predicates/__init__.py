"""Predicates of Spyre, one file per topic."""

from ...rules.predicate import default_is
from . import admission, decode, pausing, prefill, prefix, priority, volume

PREDICATES = {
    **priority.PREDICATES,
    **prefill.PREDICATES,
    **prefix.PREDICATES,
    **admission.PREDICATES,
    **volume.PREDICATES,
    **decode.PREDICATES,
    **pausing.PREDICATES,
    "SPY-R33": default_is("interleave", True),
}
