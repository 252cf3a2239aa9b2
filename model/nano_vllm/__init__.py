"""nano-vLLM: prefill first, then decode, on top of a block manager.

Read in this order: `state`, `documented` (the decision), `block_manager`, `release_0_2_0` (the
decisions in which the release differs), `scheduler` (one step of the protocol).
"""
