"""vLLM V1: one loop that computes, for every request, the known tokens that are not computed yet.

Read in this order: `state`, `scheduler` (policy), `queue`, `kv_cache` (which request has which
blocks), `completion`. Optional features: `in_flight`, `speculation`, `connector`, `encoder`,
`kv_groups`.
"""
