"""Predicates of vLLM V1, one file per topic."""

from ...rules.predicate import default_is
from . import (
    adapters,
    admission,
    blocks,
    budget,
    cache_events,
    control,
    encoder,
    grammars,
    groups,
    in_flight,
    kept_in_groups,
    loads,
    preemption,
    queues,
    sessions,
    worker,
)

PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **preemption.PREDICATES,
    **blocks.PREDICATES,
    **admission.PREDICATES,
    **in_flight.PREDICATES,
    **loads.PREDICATES,
    **encoder.PREDICATES,
    **grammars.PREDICATES,
    **groups.PREDICATES,
    **kept_in_groups.PREDICATES,
    **control.PREDICATES,
    **cache_events.PREDICATES,
    **adapters.PREDICATES,
    **sessions.PREDICATES,
    **worker.PREDICATES,
    "V1CP-R06": default_is("enable_chunked_prefill", True),
    "V1CP-R09": default_is("long_prefill_token_threshold", 0),
    "V1CP-R21": default_is("watermark", 0),
    "V1CP-R23": default_is("reserve_full_isl", True),
}
