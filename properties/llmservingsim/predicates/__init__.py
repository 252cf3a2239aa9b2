"""Predicates of LLMServingSim, one file per topic."""

from ...rules.predicate import defaults_are
from . import budget, main_loop, memory, queues

DEFAULTS = {
    **{"max_num_seqs": 128, "max_num_batched_tokens": 2048, "long_prefill_token_threshold": 0},
    **{"enable_prefix_caching": True, "prioritize_prefill": False},
}
PREDICATES = {
    **budget.PREDICATES,
    **queues.PREDICATES,
    **memory.PREDICATES,
    **main_loop.PREDICATES,
    "LSS-R36": defaults_are(DEFAULTS),
}
