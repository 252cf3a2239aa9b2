"""vLLM V1: one loop in which the computed tokens of every request catch up with its known ones.

Read in this order: `state`, `scheduler` (policy), `queue`, `kv_cache` (which request has which
blocks), `observation`. Optional features: `in_flight`, `speculation`, `connector`, `encoder`,
`kv_groups`.
"""
