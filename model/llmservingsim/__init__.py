"""LLMServingSim: the scheduler of a simulator of LLM serving.

Read in this order: `state`, `documented` (the page) or `head` (the decision of the code at HEAD),
`kv_cache` (the truth about blocks), `completion` (what a batch has brought about), `scheduler` (one
step of the protocol).
"""
