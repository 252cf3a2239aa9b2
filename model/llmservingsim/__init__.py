"""LLMServingSim: the scheduler of a simulator of LLM serving.

Read in this order: `state`, `documented` (the documentation page) or `head` (how the code at HEAD
decides), `kv_cache` (which request has which blocks), `scheduler` (one step of the protocol, and
the results of a batch).
"""
