"""nano-vLLM: prefill first, then decode, with a block manager under it.

Read in this order: `state`, `scheduler`, `block_manager`.
"""
