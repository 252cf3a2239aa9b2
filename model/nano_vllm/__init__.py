"""nano-vLLM: prefill first, then decode, with a block manager under it.

Read in this order: `state`, `documented` (the decision), `block_manager`, `release_0_2_0` (what the
release decides differently), `scheduler` (one step of the protocol).
"""
