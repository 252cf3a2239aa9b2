"""The checks of vLLM V1: predicates, strategies, bounds."""

# Kinds of configuration in which only some releases start.
WITH_THE_NULL_BLOCK = "max_model_len that needs the null block"
ANY_LENGTH = "max_model_len beyond the pool"
AHEAD_IN_STAGES = "asynchronous with pipeline stages"
MAMBA_LAYERS = "Mamba layers"
CIRCULAR_BUFFERS = "circular buffers"
INSIDE_BLOCKS = "hits inside a block"
EVERY_STATE = "Mamba states at every block boundary"
REPORTED_HITS = "events about blocks that requests find"
PREFILL_INTERVALS = "prefill at intervals"
LATER_LIMITS = "limits of 0.33.0 in addition to max_num_seqs and the threshold"
