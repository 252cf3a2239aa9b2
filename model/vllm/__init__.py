"""vLLM V1: one loop in which the computed tokens of every request catch up with its known ones.

Read in this order: `state`, `queue`, `scheduler` (policy), `kv_cache` (the truth about blocks).
"""
