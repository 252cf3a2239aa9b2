"""LLMServingSim: the scheduler of a simulator of LLM serving.

Read in this order: `state`, `revision` (what the revisions differ in), `documented` or `head` (the
decision), `kv_cache` (the truth about blocks), `completion` (what a batch has brought about),
`scheduler` (one step of the protocol). `simulator` says when the simulation is over.
"""
